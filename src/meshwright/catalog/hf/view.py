"""A careful look at a `config.json`: typed reads with bounds, synonyms, and a record of what was assumed.

A key that is absent takes the default of the family's class in `transformers`, and is listed; a key that is absurd
(a string for a width, a negative count, NaN) raises an InputError that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

from meshwright.errors import InputError
from meshwright.messages import N_, Text

# One concept, many spellings: the first is the common one. A family's reader asks by the first.
SYNONYMS: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "dim", "n_embed"),
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "attention_heads"),
    "num_key_value_heads": ("num_kv_heads", "n_head_kv", "kv_n_heads", "multi_query_group_num"),
    "intermediate_size": ("n_inner", "ffn_dim", "d_ff", "ffn_hidden_size", "hidden_dim"),
    "max_position_embeddings": ("n_positions", "max_seq_len", "model_max_length", "seq_length", "n_ctx"),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": ("moe_top_k", "moe_topk", "moe_k", "num_experts_per_token"),
    "num_nextn_predict_layers": ("num_mtp_layers",),
    "hidden_act": ("activation_function", "hidden_activation", "activation", "mlp_hidden_act"),
    "layer_types": ("layers_block_type",),
    "conv_kernel": ("mamba_d_conv",),
    "state_size": ("ssm_state_size", "mamba_d_state"),
}
WIDEST = 10**7  # no width, count of heads or experts, or position table has come near
DEEPEST = 10**4


class _Missing:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Missing()
Default: TypeAlias = Any


class Config:
    """One config with the place it came from. `assumed` collects the defaults that were filled in."""

    def __init__(self, data: Mapping[str, Any], *, where: str, family: str, nested: bool = False) -> None:
        self.data = data
        self.where = where
        self.family = family
        self.nested = nested
        self.assumed: dict[str, Any] = {}

    def fail(self, key: str, text: Text, fix: Text | None = None) -> NoReturn:
        """Raise an InputError about `key`."""
        general = Text(N_("correct '{key}', or use the complete config.json of the model"), key=key)
        raise InputError(text, where=f"{self.where}: {key}", fix=fix or general)

    def spelled(self, key: str) -> str:
        """The spelling of `key` that this config uses (`key` itself when it is absent)."""
        return next((k for k in (key, *SYNONYMS.get(key, ())) if k in self.data), key)

    def raw(self, key: str) -> Any:
        """The value under `key` or one of its synonyms; None where absent or null."""
        return self.data.get(self.spelled(key))

    def has(self, key: str) -> bool:
        """Whether `key` (or a synonym) is present, null included."""
        return self.spelled(key) in self.data

    def default(self, key: str, value: Default) -> Any:
        """What stands for an absent `key`; derived defaults (functions) are not listed as assumptions."""
        if value is REQUIRED:
            names = " / ".join((key, *SYNONYMS.get(key, ())[:3]))
            self.fail(
                key,
                Text(N_("'{key}' is missing: a {family} model cannot be sized without it"), key=names,
                     family=self.family),
                Text(N_('add "{key}": <whole number> to the config, or use the complete config.json of the model'),
                     key=key),
            )  # fmt: skip
        if callable(value):
            return value()
        self.assumed.setdefault(key, value)
        return value

    def count(
        self, key: str, default: Default = REQUIRED, *, low: int = 1, high: int = WIDEST, nullable: bool = False
    ) -> Any:
        """A whole number in [low, high]. `nullable`: an explicit null is an answer (None), not an absence."""
        name = self.spelled(key)
        value = self.data.get(name)
        if value is None:
            if nullable and name in self.data:
                return None
            return self.default(key, default)
        return self.check(name, value, low, high)

    def check(self, name: str, value: Any, low: int = 1, high: int = WIDEST) -> int:
        """`value` as a whole number in [low, high], or an InputError that names it."""
        if isinstance(value, bool) or not isinstance(value, int):
            if isinstance(value, float) and value.is_integer() and abs(value) <= high:
                value = int(value)
            else:
                shown = repr(value) if len(repr(value)) <= 40 else repr(value)[:37] + "..."
                self.fail(
                    name,
                    Text(N_("'{key}' is {value}, not a whole number"), key=name, value=shown),
                    Text(N_("write a whole number between {low} and {high}"), low=low, high=high),
                )
        if not low <= value <= high:
            shown = str(value) if abs(value) < 10**15 else f"{value:.3g}" if abs(value) < 10**300 else "> 1e300"
            self.fail(
                name,
                Text(N_("'{key}' is {value}, outside {low} to {high}"), key=name, value=shown, low=low, high=high),
                Text(N_("write a whole number between {low} and {high}"), low=low, high=high),
            )
        return int(value)

    def flag(self, key: str, default: Default) -> bool:
        """True or false."""
        value = self.raw(key)
        if value is None:
            return bool(self.default(key, default))
        if not isinstance(value, bool):
            self.fail(key, Text(N_("'{key}' is {value}, not true or false"), key=key, value=repr(value)[:40]))
        return value

    def word(self, key: str, default: Default) -> str:
        """A string."""
        value = self.raw(key)
        if value is None:
            return str(self.default(key, default))
        if not isinstance(value, str):
            self.fail(key, Text(N_("'{key}' is {value}, not a string"), key=key, value=repr(value)[:40]))
        return value

    def items(self, key: str, length: int | None = None) -> list[Any] | None:
        """A list (of `length`), or None where absent."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, list):
            self.fail(key, Text(N_("'{key}' is {value}, not a list"), key=key, value=repr(value)[:40]))
        if length is not None and len(value) != length:
            self.fail(
                key,
                Text(N_("'{key}' lists {have} layers, the model has {need}"), key=key, have=len(value), need=length),
                Text(N_("make the list {need} long, or leave it out"), need=length),
            )
        return value

    def words(self, key: str, length: int | None = None) -> list[str] | None:
        """A list of strings (of `length`), or None where absent."""
        value = self.items(key, length)
        for item in value or ():
            if not isinstance(item, str):
                self.fail(key, Text(N_("'{key}' holds {value}, not a string"), key=key, value=repr(item)[:40]))
        return value

    def sub(self, key: str) -> Config:
        """The nested table `key` (empty where absent), sharing the list of assumptions."""
        value = self.raw(key)
        if value is not None and not isinstance(value, Mapping):
            self.fail(key, Text(N_("'{key}' is {value}, not a table"), key=key, value=repr(value)[:40]))
        inner = Config(value or {}, where=f"{self.where}: {key}", family=self.family, nested=True)
        inner.assumed = self.assumed
        return inner

    def divides(self, small: int, large: int, what: str, of: str) -> None:
        """Fail unless `small` divides `large`, naming both keys and the nearest legal values."""
        if large % small:
            legal = sorted((d for d in range(1, min(large, 4096) + 1) if large % d == 0), key=lambda d: abs(d - small))
            self.fail(
                what,
                Text(N_("{what} = {small} does not divide {of} = {large}"), what=what, small=small, of=of, large=large),
                Text(N_("nearest values that do: {values}"), values=", ".join(map(str, sorted(legal[:3])))),
            )

    # The quantities every family has. Essential ones are never assumed in a config that stands alone;
    # nested text configs on the Hub do leave out what equals the class default.

    def hidden(self) -> int:
        """Model width."""
        return int(self.count("hidden_size", high=10**6))

    def layers(self) -> int:
        """Depth."""
        return int(self.count("num_hidden_layers", high=DEEPEST))

    def heads(self, default: int) -> int:
        """Query heads."""
        return int(self.count("num_attention_heads", self.essential(default), high=10**5))

    def vocab(self, default: int) -> int:
        """Rows of the token table."""
        return int(self.count("vocab_size", self.essential(default), high=10**8))

    def width(self, default: int) -> int:
        """Inner width of the MLP."""
        return int(self.count("intermediate_size", self.essential(default)))

    def positions(self, default: int | None) -> int | None:
        """Longest sequence the model is made for."""
        value = self.count("max_position_embeddings", default, high=10**9)
        return None if value is None else int(value)

    def essential(self, default: int) -> Any:
        """`default` in a nested config, REQUIRED in one that stands alone."""
        return default if self.nested else REQUIRED
