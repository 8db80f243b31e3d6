"""Without torch the package says which extra is missing, and the rest of the house does not notice."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from meshwright.errors import EXIT_MISSING, MissingExtraError


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed here")
def test_the_missing_extra_is_named() -> None:
    with pytest.raises(MissingExtraError, match="needs the extra 'torch'") as caught:
        importlib.import_module("meshwright.gradsync")
    assert caught.value.exit_code == EXIT_MISSING
    assert "meshwright[torch]" in str(caught.value.fix)
