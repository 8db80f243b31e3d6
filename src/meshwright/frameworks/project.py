"""What was imported as a project file, so that every other verb reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.frameworks.records import Imported

ORDER = ("model", "cluster", "job", "strategy")


def project_file(imported: Imported, given: Mapping[str, Mapping[str, Any]], language: str = "en") -> str:
    """TOML text of the sections, what was assumed as comments on top; `given` are settings from elsewhere."""
    import tomlkit

    document = tomlkit.document()
    document.add(tomlkit.comment(f"{imported.format} {imported.version}"))
    for text in imported.assumptions:
        document.add(tomlkit.comment(text.render(language)))
    merged = {name: {**given.get(name, {}), **imported.sections.get(name, {})} for name in ORDER}
    for name, values in merged.items():
        kept = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        if kept:
            document.add(tomlkit.nl())
            document.add(name, tomlkit.item(kept))
    return tomlkit.dumps(document)
