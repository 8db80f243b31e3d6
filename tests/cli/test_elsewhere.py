"""Names of other tools lead to options that exist."""

from __future__ import annotations

import pytest

from meshwright.cli import elsewhere


@pytest.mark.parametrize("ours", elsewhere._ELSEWHERE)
def test_every_option_named_exists(ours, run):
    described = run("estimate", "--help").stdout
    assert any(line.split()[:1] == [ours] for line in described.splitlines())


@pytest.mark.parametrize("theirs", [name for names in elsewhere._ELSEWHERE.values() for name in names])
def test_no_name_of_theirs_is_an_option_already(theirs, run):
    assert f"No such option '{theirs}'" in run("estimate", theirs).stderr
