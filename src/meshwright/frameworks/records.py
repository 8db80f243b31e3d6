"""What reading and writing a configuration give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.messages import Text
from meshwright.settings import Settings
from meshwright.spec.configuration import Configuration, Entry
from meshwright.spec.finding import Finding
from meshwright.spec.model import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a file does not say itself: the devices it will run on, degrees set elsewhere, the program around it."""

    devices: int | None = None
    tensor: int | None = None  # None: as the file says, or 1
    pipeline: int | None = None
    context: int | None = None
    beside: Mapping[str, Any] = field(default_factory=dict)  # Hugging Face TrainingArguments
    hidden: int | None = None  # width of the model, from which Hugging Face fills bucket sizes
    environment: Mapping[str, str] = field(default_factory=dict)
    version: str = ""  # of the framework; empty: the newest that was tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A configuration, understood: every setting accounted for, and what it says of model, cluster, job, strategy.

    `sections` are settings as a project file has them, so that flags and project files lie over them like over any.
    """

    format: str
    version: str
    configuration: Configuration
    entries: tuple[Entry, ...]
    findings: tuple[Finding, ...] = ()  # of reading alone; `check` adds those of the rules
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    model: ModelSpec | None = None  # where the configuration describes one
    devices: int | None = None
    assumptions: tuple[Text, ...] = ()

    @property
    def settings(self) -> Settings:
        """As a layer of settings."""
        return Settings(self.sections)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file to be written."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Something of ours that a framework's configuration cannot say, and what to do about it."""

    name: str  # our field
    value: Any
    reason: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The files of a strategy for one framework, and what they cannot express."""

    format: str
    version: str
    files: tuple[File, ...]
    settings: tuple[tuple[str, Any], ...] = ()  # names and values as written
    missing: tuple[Missing, ...] = ()
    notes: tuple[Text, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterpart:
    """One of our fields in two frameworks: how each spells it, and how the conversion went."""

    ours: str
    source: tuple[tuple[str, Any], ...]  # names and values as read
    target: tuple[tuple[str, Any], ...]
    verdict: str  # maps, changed, lost, added, program
    note: Text | None = None
