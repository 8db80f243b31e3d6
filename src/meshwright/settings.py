"""The project file: `meshwright.toml` with [model] [cluster] [job] [strategy] [constraints], found upwards.

Settings are one nested table. Later layers win: user file, project file, `--set key=value`, flags.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from meshwright.errors import InputError
from meshwright.messages import N_, Text
from meshwright.spec.job import Job
from meshwright.spec.strategy import Strategy

FILE_NAME = "meshwright.toml"

_JOB = {f.name for f in fields(Job)}
_STRATEGY = {f.name for f in fields(Strategy)}
_CONSTRAINTS = {
    "framework", "frameworks", "tensor", "pipeline", "virtual", "context", "expert", "expert_tensor", "data",
    "micro_batch", "sharding", "shard", "recompute", "recompute_ops", "schedule", "offload", "max_memory_fraction",
    "goal", "top",
}  # fmt: skip
# Fields of a cluster that may be set over the catalogue's values (names of `catalog.clusters.OVERRIDES`).
CLUSTER_OVERRIDES = (
    "node_size", "domain_size", "link", "link_bandwidth", "nic_bandwidth", "nics_per_node", "fabric", "rails",
    "pod_size", "oversubscription", "host_memory_bytes", "price_per_device_hour",
)  # fmt: skip
KNOWN: dict[str, set[str]] = {
    "model": {"name", "path"},
    "cluster": {"name", "path", "price", *CLUSTER_OVERRIDES},
    "job": _JOB,
    "strategy": _STRATEGY,
    "constraints": _CONSTRAINTS,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Merged settings by section, and the file they came from (for messages and relative paths)."""

    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    path: Path | None = None

    def section(self, name: str) -> Mapping[str, Any]:
        """The values of one section; empty when absent."""
        return self.sections.get(name, {})

    def get(self, section: str, key: str, default: Any = None) -> Any:
        """One value."""
        return self.section(section).get(key, default)

    def overlaid(self, other: Mapping[str, Mapping[str, Any]]) -> Settings:
        """These settings with `other` on top."""
        merged = {name: dict(values) for name, values in self.sections.items()}
        for name, values in other.items():
            merged.setdefault(name, {}).update(values)
        return Settings(merged, self.path)


def find_file(start: Path) -> Path | None:
    """`meshwright.toml`, or a `pyproject.toml` with [tool.meshwright], in `start` or above it."""
    for folder in (start, *start.parents):
        candidate = folder / FILE_NAME
        if candidate.is_file():
            return candidate
        pyproject = folder / "pyproject.toml"
        if pyproject.is_file() and "[tool.meshwright" in pyproject.read_text("utf-8", "replace"):
            return pyproject
    return None


def user_file(environ: Mapping[str, str] | None = None) -> Path:
    """Where the user's own defaults live."""
    environ = os.environ if environ is None else environ
    if environ.get("XDG_CONFIG_HOME"):
        return Path(environ["XDG_CONFIG_HOME"]) / "meshwright" / "config.toml"
    import platformdirs

    return Path(platformdirs.user_config_dir("meshwright")) / "config.toml"


def load(path: str | Path | None = None, *, start: Path | None = None, discover: bool = True) -> Settings:
    """Settings of the user file, overlaid by `path` or by the project file found from `start` upwards."""
    settings = Settings()
    user = user_file() if discover else None
    if user is not None and user.is_file():
        settings = settings.overlaid(read_file(user).sections)
    found = Path(path) if path is not None else (find_file(start or Path.cwd()) if discover else None)
    if found is None:
        return settings
    project = read_file(found)
    return Settings(settings.overlaid(project.sections).sections, found)


def read_file(path: Path) -> Settings:
    """One settings file, checked."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(
            Text(N_("cannot read the project file: {reason}"), reason=error.strerror or str(error)), where=str(path)
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(
            Text(N_("the project file is not valid TOML: {reason}"), reason=str(error)), where=str(path)
        ) from error
    if path.name == "pyproject.toml":
        document = document.get("tool", {}).get("meshwright", {})
    return Settings(check(document, where=str(path)), path)


def check(document: Mapping[str, Any], *, where: str) -> dict[str, dict[str, Any]]:
    """Sections with known keys only; a bare `model = "name"` stands for `[model] name = "name"`."""
    sections: dict[str, dict[str, Any]] = {}
    for name, values in document.items():
        if name not in KNOWN:
            raise _unknown(name, KNOWN, where)
        if isinstance(values, str) and name in ("model", "cluster"):
            values = {"name": values}
        if not isinstance(values, Mapping):
            raise InputError(
                Text(N_("'{name}' must be a table of settings"), name=name),
                where=where,
                fix=Text(N_("write it as [{name}] followed by key = value lines"), name=name),
            )
        for key in values:
            if key not in KNOWN[name]:
                raise _unknown(f"{name}.{key}", (f"{name}.{k}" for k in KNOWN[name]), where)
        sections[name] = dict(values)
    return sections


def _unknown(name: str, known: Iterable[str], where: str) -> InputError:
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known
    return InputError(
        Text(N_("'{name}' is not a setting"), name=name),
        where=where,
        fix=Text(N_("known here: {names}"), names=", ".join(close)),
    )


def parse_assignments(items: Iterable[str]) -> dict[str, dict[str, Any]]:
    """`--set job.dropout=true` items as a settings table; values are read as TOML, else as text."""
    sections: dict[str, dict[str, Any]] = {}
    for item in items:
        key, equals, text = item.partition("=")
        section, dot, name = key.strip().partition(".")
        if not equals or not dot:
            raise InputError(
                Text(N_("'{item}' is not of the form section.key=value"), item=item[:80]),
                where="--set",
                fix=Text(N_("write it like {examples}"), examples="--set job.dropout=true"),
            )
        checked = check({section: {name: _value(text)}}, where="--set")
        sections.setdefault(section, {}).update(checked[section])
    return sections


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()
