"""Reads any `config.json` of a known family into a ModelSpec. Nothing is executed, nothing is fetched.

The table below says which module knows which family; a module has `READERS`, family → function of a `Config`.
To add a family: write its function (or a Recipe in `dense.py`), name it here, and add a case to the judge test.
"""

from __future__ import annotations

import difflib
import importlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from meshwright.catalog.hf.view import Config
from meshwright.errors import InputError
from meshwright.files import decode, said
from meshwright.messages import N_, Text
from meshwright.spec.model import ModelSpec

MODULES: dict[str, tuple[str, ...]] = {
    "dense": (
        "llama", "granite", "mistral", "ministral3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi", "phi3",
        "olmo", "olmo2", "olmo3", "cohere", "cohere2", "stablelm", "starcoder2", "nemotron", "glm", "glm4", "exaone4",
        "ernie4_5", "smollm3", "seed_oss", "arcee", "helium", "persimmon", "hunyuan_v1_dense", "apertus",
    ),
    "gpt": (
        "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "codegen", "bloom", "opt", "falcon", "mpt", "biogpt",
        "xglm",
    ),
    "moe": (
        "mixtral", "phimoe", "olmoe", "flex_olmo", "minimax_m2", "qwen2_moe", "qwen3_moe", "granitemoe",
        "granitemoeshared", "gpt_oss", "llama4_text", "glm4_moe", "ernie4_5_moe", "hunyuan_v1_moe", "dbrx",
    ),
    "latent": ("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"),
    "hybrid": (
        "mamba", "falcon_mamba", "mamba2", "jamba", "bamba", "granitemoehybrid", "nemotron_h", "qwen3_next",
        "qwen3_5_text", "qwen3_5_moe_text", "minimax",
    ),
    "encoder": ("bert", "roberta", "distilbert", "t5", "mt5", "umt5", "vit", "whisper"),
}  # fmt: skip
FAMILIES: dict[str, str] = {family: module for module, families in MODULES.items() for family in families}
# Other names for the same thing: names of remote code on the Hub, and text parts of multimodal models.
ALIASES = {
    "RefinedWeb": "falcon", "RefinedWebModel": "falcon", "refinedweb": "falcon", "xlm-roberta": "roberta",
    "qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3", "qwen3_vl_moe_text": "qwen3_moe",
    "phi-msft": "phi", "nemotron-h": "nemotron_h", "minimax_text_01": "minimax",
}  # fmt: skip
NESTED = ("text_config", "llm_config", "language_config")
# Class names whose stem is spelt differently from their family.
CLASSES = {"hunyuandensev1": "hunyuan_v1_dense", "hunyuanmoev1": "hunyuan_v1_moe", "rw": "falcon"}
_TASK = re.compile(r"(_?For[A-Z]\w*|LMHeadModel|LMHead|Model)$")


def from_text(text: str | bytes, *, where: str = "config.json") -> ModelSpec:
    """A ModelSpec from the text of a `config.json`."""
    return from_config(parse(text, where=where), where=where)


def parse(text: str | bytes, *, where: str) -> dict[str, Any]:
    """The JSON object in `text`, or an InputError with line and column."""
    try:
        data = json.loads(decode(text, where=where))
    except json.JSONDecodeError as error:
        message = Text(N_("not valid JSON at line {line}, column {column}: {reason}"), line=error.lineno,
                       column=error.colno, reason=said(error.msg))  # fmt: skip
        fix = Text(N_("correct the file there, or save the model's config.json again"))
        raise InputError(message, where=where, fix=fix) from None
    except (RecursionError, ValueError):
        raise InputError(
            Text(N_("JSON nested or written too large to be a model config")),
            where=where,
            fix=Text(N_("pass the model's config.json")),
        ) from None
    if not isinstance(data, dict):
        kind = type(data).__name__
        message = Text(N_("a model config is a JSON object, this is a {kind}"), kind=kind)
        raise InputError(message, where=where, fix=Text(N_("pass the model's config.json")))
    return data


def from_config(data: Mapping[str, Any], *, where: str = "config.json", nested: bool = False) -> ModelSpec:
    """A ModelSpec from the object in a `config.json`; nested text configs of multimodal models are followed."""
    family = _family(data, where)
    if family in FAMILIES:
        model = reader(family)(Config(data, where=where, family=family, nested=nested))
        if data.get("model_type") is None:
            remark = Text(N_("model: the config has no model_type; {name} makes it {family}"), name=_class(data),
                          family=family)  # fmt: skip
            model = replace(model, remarks=(*model.remarks, remark))
        return model
    for key in NESTED:
        inner = data.get(key)
        if isinstance(inner, Mapping):
            shared = {k: data[k] for k in ("tie_word_embeddings", "vocab_size") if k in data and k not in inner}
            guess = family if f"{family}_text" not in FAMILIES else f"{family}_text"
            model = from_config(
                {"model_type": guess, **shared, **inner}, where=f"{where}: {key}", nested=True
            )  # fmt: skip
            remark = Text(N_("model: only the language model inside {family} is planned ({key}); other towers are not"),
                          family=family, key=key)  # fmt: skip
            return replace(model, remarks=(*model.remarks, remark))
    raise _unknown(family, where)


def reader(family: str) -> Callable[[Config], ModelSpec]:
    """The function that reads `family`, its module imported on first use."""
    module = importlib.import_module(f"meshwright.catalog.hf.{FAMILIES[family]}")
    readers: dict[str, Callable[[Config], ModelSpec]] = module.READERS
    return readers[family]


def _family(data: Mapping[str, Any], where: str) -> str:
    value = data.get("model_type")
    if value is None and (value := family_of_class(_class(data), text=not any(key in data for key in NESTED))) is None:
        names = data.get("architectures")
        fix = Text(N_('add "model_type", for example "llama", or describe the architecture in a TOML file'))
        text = Text(N_("no model_type: the family of the model is unknown"))
        if isinstance(names, list) and names and isinstance(names[0], str):
            text = Text(N_("no model_type: the family of {name} is unknown"), name=names[0][:80])
        raise InputError(text, where=f"{where}: model_type", fix=fix)
    if not isinstance(value, str):
        raise InputError(
            Text(N_("'model_type' is {value}, not a string"), value=repr(value)[:40]),
            where=f"{where}: model_type",
            fix=Text(N_('add "model_type", for example "llama", or describe the architecture in a TOML file')),
        )
    return ALIASES.get(value, value)


def _class(data: Mapping[str, Any]) -> str:
    """The first class that `architectures` names, if it names any."""
    names = data.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def family_of_class(name: str, *, text: bool = True) -> str | None:
    """The family whose model class in transformers is `name`; `text`: rather its language model than the whole.

    >>> family_of_class("GPT2LMHeadModel"), family_of_class("Gemma3ForCausalLM"), family_of_class("Unheard")
    ('gpt2', 'gemma3_text', None)
    """

    def plain(word: str) -> str:
        return re.sub("[^a-z0-9]", "", word.lower())

    known = {plain(family): family for family in (*ALIASES, *FAMILIES)} | CLASSES
    stem = plain(_TASK.sub("", name))
    if f"{stem}text" in known and stem not in known:
        return known[f"{stem}text"] if text else known[f"{stem}text"].removesuffix("_text")
    return known.get(stem)


def _unknown(family: str, where: str) -> InputError:
    close = difflib.get_close_matches(family.lower(), [*FAMILIES, *ALIASES], n=4, cutoff=0.5)
    names = ", ".join(close) if close else ", ".join(sorted(FAMILIES)[:8]) + ", …"
    return InputError(
        Text(N_("the model family '{family}' is not known"), family=family[:80]),
        where=f"{where}: model_type",
        fix=Text(
            N_("families read: {names}; or describe the architecture in a TOML file (docs/reference/model-toml.md)"),
            names=names,
        ),
    )
