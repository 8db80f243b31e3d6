"""The project file: `meshwright.toml` with [model] [cluster] [job] [strategy] [constraints], found upwards.

Settings are one nested table. Later layers win: user file, project file, `--set key=value`, flags.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from meshwright.errors import InputError
from meshwright.files import decode, is_file, read_bytes, reason_of
from meshwright.messages import N_, Text
from meshwright.spec.job import Job
from meshwright.spec.strategy import Strategy

FILE_NAME = "meshwright.toml"
LARGEST = 4_000_000  # bytes of a project file

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
        if is_file(candidate):
            return candidate
        pyproject = folder / "pyproject.toml"
        if is_file(pyproject) and _mentions_us(pyproject):
            return pyproject
    return None


def _mentions_us(pyproject: Path) -> bool:
    """Whether a `pyproject.toml` holds our table; one that cannot be read is not ours to complain about."""
    try:
        return "[tool.meshwright" in pyproject.read_text("utf-8", "replace")
    except OSError:
        return False


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
    if user is not None and is_file(user):
        settings = settings.overlaid(read_file(user).sections)
    found = Path(path) if path is not None else (_find_here(start) if discover else None)
    if found is None:
        return settings
    project = read_file(found)
    return Settings(settings.overlaid(project.sections).sections, found)


def _find_here(start: Path | None) -> Path | None:
    """`find_file` from `start` or from the current folder, which may have been removed under our feet."""
    try:
        return find_file(start or Path.cwd())
    except FileNotFoundError:
        return None


def read_file(path: Path) -> Settings:
    """One settings file, checked."""
    fix = Text(N_("give the path of a {name}, or use --no-config"), name=FILE_NAME)
    text = decode(read_bytes(path, largest=LARGEST, fix=fix), where=str(path))
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError too
        raise InputError(
            Text(N_("the project file is not valid TOML: {reason}"), reason=reason_of(error)),
            where=str(path),
            fix=Text(N_("correct the file there, or use --no-config")),
        ) from error
    if path.name == "pyproject.toml":
        tool = _table(document.get("tool", {}), "tool", str(path))
        document = dict(_table(tool.get("meshwright", {}), "tool.meshwright", str(path)))
    return Settings(check(document, where=str(path)), path)


def _table(value: Any, name: str, where: str) -> Mapping[str, Any]:
    """`value` if it is a table."""
    if not isinstance(value, Mapping):
        raise InputError(
            Text(N_("'{name}' must be a table of settings"), name=name),
            where=where,
            fix=Text(N_("write it as [{name}] followed by key = value lines"), name=name),
        )
    return value


def check(document: Mapping[str, Any], *, where: str) -> dict[str, dict[str, Any]]:
    """Sections with known keys only; a bare `model = "name"` stands for `[model] name = "name"`."""
    sections: dict[str, dict[str, Any]] = {}
    for name, values in document.items():
        if name not in KNOWN:
            raise _unknown(name, KNOWN, where)
        if isinstance(values, str) and name in ("model", "cluster"):
            values = {"name": values}
        for key in _table(values, name, where):
            if key not in KNOWN[name]:
                raise _unknown(f"{name}.{key}", (f"{name}.{k}" for k in KNOWN[name]), where)
            _typed(values[key], name, key, where)
        sections[name] = dict(values)
    return sections


_TEXTS = {("model", "name"), ("model", "path"), ("cluster", "name"), ("cluster", "path")}
_LISTS = {("strategy", "recompute_ops"), ("strategy", "layers_per_stage")}


def _typed(value: Any, section: str, key: str, where: str) -> None:
    """Refuse what no reader of settings expects; what a value may be is the business of who reads it."""
    scalar = isinstance(value, (str, int, float))  # bool is an int
    items = isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float)) for item in value)
    if (section, key) in _TEXTS:
        legal, wanted = isinstance(value, str), N_("a text")
    elif (section, key) in _LISTS:
        legal, wanted = items or isinstance(value, str), N_("a list")
    elif section == "constraints":
        legal, wanted = items or scalar, N_("a value, or a list of values")
    else:
        # A value of the cluster may be a table with its unit and source, as in the catalogue.
        legal = scalar or (section == "cluster" and isinstance(value, Mapping))
        wanted = N_("a single value")
    if not legal:
        shown = str(value)[:40]
        raise InputError(
            Text(N_("'{key}' is {value}, not {wanted}"), key=f"{section}.{key}", value=shown, wanted=Text(wanted)),
            where=where,
            fix=Text(N_("write it like {examples}"), examples=_EXAMPLES.get((section, key), f"{key} = …")),
        )


_EXAMPLES = {
    ("model", "name"): 'name = "llama-3.1-70b"', ("model", "path"): 'path = "config.json"',
    ("cluster", "name"): 'name = "h100-sxm:512"', ("cluster", "path"): 'path = "my-cluster.toml"',
    ("strategy", "recompute_ops"): 'recompute_ops = ["core_attn", "mlp"]',
    ("strategy", "layers_per_stage"): "layers_per_stage = [10, 11, 11]",
}  # fmt: skip


def _unknown(name: str, known: Iterable[str], where: str) -> InputError:
    known = sorted(known)
    here = [key for key in known if name.partition(".")[0] == key.partition(".")[0]] or known
    return InputError(
        Text(N_("'{name}' is not a setting"), name=name),
        where=where,
        fix=Text(N_("known here: {names}"), names=", ".join(here)),
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
    except (ValueError, RecursionError):  # not TOML, or a number of 5,000 digits
        return text.strip()
