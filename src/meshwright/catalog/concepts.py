"""Concept cards: what a notion of distributed training is, when it is right, what it costs, in English and Spanish.

One TOML file per concept in `data/concepts`, both languages side by side. A card may hold `numbers`: sentences whose
placeholders are filled with the values of the reader's own plan (`PLACEHOLDERS` is the whole vocabulary).
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from meshwright.errors import UnknownNameError
from meshwright.messages import N_, Text
from meshwright.spec.plan import Explanation, Section

DATA_DIR = Path(__file__).parent / "data" / "concepts"
FRAMEWORK_NAMES = {"pytorch": "PyTorch", "deepspeed": "DeepSpeed", "megatron": "Megatron-LM", "jax": "JAX"}

# What a `numbers` sentence may mention, and how its value is printed.
PLACEHOLDERS: dict[str, str] = {
    **dict.fromkeys(("tensor", "pipeline", "virtual", "context", "expert", "data", "devices", "nodes"), "integer"),
    **dict.fromkeys(("micro_batch", "micro_batches", "global_batch", "seq_len", "layers", "hidden"), "integer"),
    **dict.fromkeys(("heads", "kv_heads", "domain"), "integer"),
    **dict.fromkeys(("params", "tokens_per_s"), "count"),
    **dict.fromkeys(("peak_gib", "capacity_gib", "parameters_gib", "gradients_gib", "optimizer_gib"), "decimal"),
    **dict.fromkeys(("activations_gib", "link_gbs", "nic_gbs"), "decimal"),
    **dict.fromkeys(("step_s", "compute_s", "tensor_comm_s", "data_comm_s", "expert_comm_s"), "decimal"),
    **dict.fromkeys(("context_comm_s", "pipeline_comm_s", "bubble_s", "optimizer_s", "recompute_s"), "decimal"),
    **dict.fromkeys(("bubble_pct", "exposed_pct", "mfu_pct", "hfu_pct"), "decimal"),
    **dict.fromkeys(("framework", "sharding", "recompute", "precision", "model", "cluster"), "word"),
}

_CONDITION = re.compile(r"^(\w+) (>|=) (\d+)$")
_BRACES = re.compile(r"\{(\w+)\}")
_WORDS = {"none": N_("none"), "selective": N_("selective"), "full": N_("full")}


@dataclass(frozen=True, slots=True, init=False)
class CardText(Text):
    """A sentence of a card: it carries its own Spanish instead of asking the catalogue of messages."""

    spanish: str = ""

    def __init__(self, english: str, spanish: str, **values: Any) -> None:
        Text.__init__(self, english, **values)
        object.__setattr__(self, "spanish", spanish)

    def render(self, language: str = "en") -> str:
        """The sentence in `language`; braces are placeholders only where values were given."""
        template = self.spanish if language == "es" else self.template
        values = {k: v.render(language) if isinstance(v, Text) else v for k, v in self.values.items()}
        return template.format(**values) if values else template


@dataclass(frozen=True, slots=True)
class NumbersLine:
    """A sentence about the reader's plan; `condition` is empty or e.g. `tensor > 1`."""

    text: CardText
    condition: str = ""

    def applies(self, values: Mapping[str, Any]) -> bool:
        """Whether the plan meets the condition and has every value the sentence needs."""
        if any(values.get(name) is None for name in _BRACES.findall(self.text.template)):
            return False
        if not (match := _CONDITION.match(self.condition)):
            return True
        name, sign, bound = match.groups()
        value = values.get(name)
        return value is not None and (value > int(bound) if sign == ">" else value == int(bound))

    def fill(self, values: Mapping[str, Any]) -> CardText:
        """The sentence with the plan's values in print form."""
        names = _BRACES.findall(self.text.template)
        return CardText(self.text.template, self.text.spanish, **{name: show(name, values[name]) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Concept:
    """One card. Every text has both languages."""

    id: str
    title: CardText
    aliases: tuple[str, ...]
    what: CardText
    when: tuple[CardText, ...]
    when_not: tuple[CardText, ...]
    memory: CardText
    communication: CardText
    equation: CardText
    compute: CardText
    rule: CardText
    spelling: Mapping[str, CardText]  # by framework: pytorch, deepspeed, megatron, jax
    mistakes: tuple[CardText, ...]
    numbers: tuple[NumbersLine, ...]
    see_also: tuple[str, ...]
    sources: tuple[str, ...]

    def plan_lines(self, values: Mapping[str, Any]) -> tuple[CardText, ...]:
        """The `numbers` sentences that apply to a plan, filled; `values` uses the names of `PLACEHOLDERS`."""
        return tuple(line.fill(values) for line in self.numbers if line.applies(values))

    def explanation(self, values: Mapping[str, Any] | None = None) -> Explanation:
        """The card as sections; with `values`, the numbers of the reader's plan come first."""
        own = self.plan_lines(values) if values else ()
        cost = (
            Text(N_("memory: {text}"), text=self.memory),
            Text(N_("communication: {text}"), text=self.equation),
            self.communication,
            Text(N_("compute: {text}"), text=self.compute),
        )
        spelt = tuple(Text(N_("{name}: {text}"), name=FRAMEWORK_NAMES[k], text=v) for k, v in self.spelling.items())
        sections = (
            Section(title=Text(N_("What it is")), body=(self.what,)),
            Section(title=Text(N_("In your plan")), body=own),
            Section(title=Text(N_("When it is right")), body=self.when),
            Section(title=Text(N_("When it is not")), body=self.when_not),
            Section(title=Text(N_("What it costs")), body=cost),
            Section(title=Text(N_("Rule of thumb")), body=(self.rule,)),
            Section(title=Text(N_("Typical mistakes")), body=self.mistakes),
            Section(title=Text(N_("How it is spelt")), body=spelt),
        )
        return Explanation(
            subject=self.id,
            kind="concept",
            title=self.title,
            sections=tuple(s for s in sections if s.body),
            sources=self.sources,
            see_also=self.see_also,
        )


def show(name: str, value: Any) -> Any:
    """`value` of placeholder `name` as it is printed: integers whole, counts as 70.6B, the rest in three figures."""
    kind = PLACEHOLDERS[name]
    if kind == "word" or isinstance(value, str):
        return Text(_WORDS[value]) if value in _WORDS else str(value)
    if kind == "integer":
        return str(int(value))
    if kind == "count":
        for bound, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
            if value >= bound:
                return f"{_three_figures(value / bound)}{suffix}"
    return _three_figures(value)


def _three_figures(value: float) -> str:
    """Three significant figures without exponent; more where the number is larger than that."""
    if value == 0:
        return "0"
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.1 else 4
    return f"{value:.{decimals}f}"


@lru_cache(maxsize=1)
def concept_ids() -> tuple[str, ...]:
    """Ids of all cards, sorted."""
    return tuple(sorted(path.stem for path in DATA_DIR.glob("*.toml")))


def find(name: str) -> Concept:
    """The card called `name`: an id, a title or alias in either language, or a fragment of one that is unique."""
    key = _key(name)
    if key in concept_ids():
        return load(key)
    names = _names()
    if key in names:
        return load(names[key])
    hits = sorted({card for alias, card in names.items() if key and key in alias})
    if len(hits) == 1:
        return load(hits[0])
    if hits:
        raise UnknownNameError(Text(N_("concept")), name, hits, ambiguous=True)
    raise UnknownNameError(Text(N_("concept")), name, {*concept_ids(), *names})


@lru_cache(maxsize=128)
def load(concept: str) -> Concept:
    """Read one card by id."""
    raw = tomllib.loads((DATA_DIR / f"{concept}.toml").read_text("utf-8"))
    cost = raw["cost"]
    return Concept(
        id=concept,
        title=_text(raw["title"]),
        aliases=(*raw["aliases"]["en"], *raw["aliases"]["es"]),
        what=_text(raw["what"]),
        when=_texts(raw["when"]),
        when_not=_texts(raw["when_not"]),
        memory=_text(cost["memory"]),
        communication=_text(cost["communication"]),
        equation=_either(cost["communication"]["equation"]),
        compute=_text(cost["compute"]),
        rule=_text(raw["rule"]),
        spelling={framework: _either(text) for framework, text in raw["spelling"].items()},
        mistakes=_texts(raw["mistakes"]),
        numbers=tuple(NumbersLine(_text(line), line.get("if", "")) for line in raw.get("numbers", ())),
        see_also=tuple(raw["see_also"]),
        sources=tuple(raw["sources"]),
    )


def _text(pair: Mapping[str, str]) -> CardText:
    return CardText(pair["en"], pair["es"])


def _either(text: str | Mapping[str, str]) -> CardText:
    """Code and symbols are the same in both languages and written once."""
    return CardText(text, text) if isinstance(text, str) else _text(text)


def _texts(pair: Mapping[str, list[str]]) -> tuple[CardText, ...]:
    return tuple(CardText(en, es) for en, es in zip(pair["en"], pair["es"], strict=True))


@lru_cache(maxsize=1)
def _names() -> Mapping[str, str]:
    """Every id, title and alias, as a key, to the id of its card."""
    return {_key(text): card for card, head in _heads() for text in (card, *head)}


def _heads() -> Iterator[tuple[str, list[str]]]:
    """Title and aliases of every card, without parsing the rest of the file (a name is looked up in milliseconds)."""
    for concept in concept_ids():
        head = (DATA_DIR / f"{concept}.toml").read_text("utf-8").split("\n[what]", 1)[0]
        raw = tomllib.loads(head)
        yield concept, [*raw["title"].values(), *raw["aliases"]["en"], *raw["aliases"]["es"]]


def _key(name: str) -> str:
    """Lower case, no accents, words joined by hyphens."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return "-".join(re.findall(r"[a-z0-9+]+", plain))
