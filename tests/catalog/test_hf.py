"""The config.json reader: what it reads, what it assumes and says so, what it refuses and how."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.catalog import hf
from meshwright.engine.params import model_params
from meshwright.errors import InputError
from meshwright.spec.model import Attention, Mamba2, ModelSpec

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rope_theta": 500000.0,
}  # fmt: skip


def without(key: str) -> dict[str, Any]:
    return {k: v for k, v in LLAMA.items() if k != key}


def test_llama_8b() -> None:
    assert model_params(hf.from_config(LLAMA)).total == 8030261248


def test_bytes_text_and_byte_order_mark() -> None:
    text = json.dumps(LLAMA)
    assert hf.from_text(text) == hf.from_text(b"\xef\xbb\xbf" + text.encode()) == hf.from_text("\ufeff" + text)


def test_infinity_in_an_unread_key_is_no_obstacle() -> None:
    """mamba2 configs on the Hub hold "time_step_limit": [0.0, Infinity]."""
    assert hf.from_text(json.dumps({**LLAMA, "time_step_limit": [0.0, math.inf]})) == hf.from_config(LLAMA)


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
)
def test_missing_essential_key_is_named(key: str) -> None:
    with pytest.raises(InputError) as caught:
        hf.from_config(without(key))
    assert key in str(caught.value) and key in caught.value.where and key in str(caught.value.fix)
    assert caught.value.exit_code == 2


def test_missing_optional_keys_are_assumed_and_listed() -> None:
    model = hf.from_config(without("tie_word_embeddings"))
    assert ("tie_word_embeddings", "false") in model.assumed
    assert any("tie_word_embeddings" in str(text) for text in model.assumptions)
    complete = {**LLAMA, "attention_bias": False, "mlp_bias": False, "hidden_act": "silu",
                "max_position_embeddings": 8192}  # fmt: skip
    assert hf.from_config(complete).assumed == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [("hidden_size", -4096), ("num_hidden_layers", 0), ("hidden_size", 1e30), ("hidden_size", "4096"),
     ("vocab_size", True), ("vocab_size", float("nan")), ("intermediate_size", [1]), ("num_hidden_layers", 10**9),
     ("num_attention_heads", 2.5), ("head_dim", 10**400), ("vocab_size", {}), ("tie_word_embeddings", "yes")],
)  # fmt: skip
def test_absurd_values_are_named(key: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        hf.from_config({**LLAMA, key: value})
    assert key in str(caught.value)


def test_heads_that_do_not_divide() -> None:
    with pytest.raises(InputError, match="num_attention_heads = 33 does not divide hidden_size = 4096") as caught:
        hf.from_config({**LLAMA, "num_attention_heads": 33, "num_key_value_heads": 11})
    assert "32" in str(caught.value.fix)
    with pytest.raises(InputError, match="num_key_value_heads = 7 does not divide"):
        hf.from_config({**LLAMA, "num_key_value_heads": 7})
    wide = hf.from_config({**LLAMA, "num_attention_heads": 33, "num_key_value_heads": 11, "head_dim": 128})
    assert isinstance(wide.blocks[0].mixer, Attention)


def test_more_experts_chosen_than_there_are() -> None:
    config = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 9}
    with pytest.raises(InputError, match="9 of 8 experts"):
        hf.from_config(config)


def test_unknown_family_names_the_closest_and_the_toml_way() -> None:
    with pytest.raises(InputError) as caught:
        hf.from_config({**LLAMA, "model_type": "qwen3_mo"})
    assert "qwen3_moe" in str(caught.value.fix) and "TOML" in str(caught.value.fix)


def test_no_model_type_but_a_class() -> None:
    """Configs cut down to what matters often keep only `architectures`; what was concluded is said."""
    model = hf.from_config(without("model_type"))
    assert replace(model, remarks=()) == hf.from_config(LLAMA)
    assert any("LlamaForCausalLM" in str(text) for text in model.assumptions)


@pytest.mark.parametrize("classes", [["UnheardForCausalLM"], [], "LlamaForCausalLM", [None], None])
def test_no_model_type_and_no_class_of_a_known_family(classes: object) -> None:
    with pytest.raises(InputError, match="no model_type") as caught:
        hf.from_config({**without("model_type"), "architectures": classes})
    assert "model_type" in caught.value.where


def test_class_of_a_multimodal_model_is_followed_to_its_text() -> None:
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "model_type": "gemma3_text"}
    outer = hf.from_config({"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text})
    assert outer.family == "gemma3_text" and outer.hidden == 2560


@pytest.mark.parametrize(
    ("text", "expected"),
    [('{"a": 1,\n "b" 2}', "line 2, column 6"), ("", "line 1, column 1"), ("[1, 2]", "a JSON object"),
     ('"llama"', "a JSON object"), ("[" * 100_000, "too large"), ('{"hidden_size": ' + "9" * 5000 + "}", "too large")],
)  # fmt: skip
def test_malformed_json(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        hf.from_text(text)


def test_not_text() -> None:
    with pytest.raises(InputError, match="UTF-8"):
        hf.from_text(b"\x80\x81\x00\x01")


def test_nested_text_config_is_followed_with_its_class_defaults() -> None:
    """gemma-3-4b's config.json leaves out heads and vocabulary, which equal the class's defaults."""
    config = {
        "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {"x": 1},
        "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
                        "num_hidden_layers": 34, "sliding_window": 1024},
    }  # fmt: skip
    model = hf.from_config(config)
    assert model_params(model).total == 3880263168
    assert ("num_attention_heads", "8") in model.assumed
    assert any("language model" in str(text) for text in model.assumptions)
    windows = [model.blocks[i].mixer.window for i in model.pattern]  # type: ignore[union-attr]
    assert windows[:6] == [1024] * 5 + [None] and windows.count(None) == 5


def test_nested_text_config_of_an_unknown_shell() -> None:
    config = {"model_type": "brand_new_vlm", "text_config": LLAMA}
    assert model_params(hf.from_config(config)).total == 8030261248


def test_nested_errors_say_where() -> None:
    with pytest.raises(InputError) as caught:
        hf.from_config({"model_type": "gemma3", "text_config": {"hidden_size": 0, "num_hidden_layers": 2}})
    assert "text_config" in caught.value.where


def test_synonyms() -> None:
    ours = hf.from_config({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257})
    theirs = hf.from_config(
        {"model_type": "gpt2", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
         "vocab_size": 50257}
    )  # fmt: skip
    assert ours == theirs
    assert model_params(ours).total == 124439808


def test_explicit_null_is_not_an_absence() -> None:
    mistral = {**LLAMA, "model_type": "mistral"}
    assert hf.from_config({**mistral, "sliding_window": None}).blocks[0].mixer.window is None  # type: ignore[union-attr]
    assert hf.from_config(mistral).blocks[0].mixer.window == 4096  # type: ignore[union-attr]
    assert ("sliding_window", "4096") in hf.from_config(mistral).assumed


def test_layer_types_of_the_wrong_length() -> None:
    config = {**LLAMA, "model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 2,
              "layer_types": ["full_attention"] * 3}  # fmt: skip
    with pytest.raises(InputError, match="lists 3 layers, the model has 32"):
        hf.from_config(config)


def test_nemotron_pattern() -> None:
    config = {"model_type": "nemotron_h", "hidden_size": 256, "vocab_size": 1000, "num_attention_heads": 4,
              "num_key_value_heads": 2, "intermediate_size": 512, "hybrid_override_pattern": "M-M*"}  # fmt: skip
    model = hf.from_config(config)
    kinds = [type(model.blocks[i].mixer).__name__ for i in model.pattern]
    assert kinds == ["Mamba2", "NoneType", "Mamba2", "Attention"]
    assert isinstance(model.blocks[0].mixer, Mamba2)
    with pytest.raises(InputError, match="'X' is not a layer kind"):
        hf.from_config({**config, "hybrid_override_pattern": "MX"})
    with pytest.raises(InputError, match="3 layers, but the pattern lists 4"):
        hf.from_config({**config, "num_hidden_layers": 3})


def test_every_family_is_registered_once_and_exists() -> None:
    for family in hf.FAMILIES:
        assert callable(hf.reader(family))
    assert len(hf.FAMILIES) == sum(len(f) for f in hf.MODULES.values())


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-10, 200), st.integers(), st.floats(), st.text(max_size=5),
    st.lists(st.integers(0, 3), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip
KEYS = st.sampled_from([
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "vocab_size", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "layer_types", "sliding_window",
    "kv_lora_rank", "q_lora_rank", "first_k_dense_replace", "expand", "n_groups", "tie_word_embeddings", "num_heads",
    "mlp_only_layers", "decoder_sparse_step", "attention_types", "moe_layers", "no_rope_layers", "image_size",
    "patch_size", "hybrid_override_pattern", "attn_config", "ffn_config", "mamba_n_heads", "d_kv", "encoder_layers",
    "decoder_layers", "attn_layer_period", "attn_layer_offset", "num_nextn_predict_layers", "id2label",
    "architectures", "_name_or_path", "text_config", "attn_layer_indices", "max_window_layers", "layers_block_type",
    "full_attention_interval", "mlp_layer_types", "time_step_rank", "n_group", "topk_group", "use_sliding_window",
])  # fmt: skip
BASE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
        "vocab_size": 100, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "encoder_layers": 2, "decoder_layers": 2}  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(family=st.sampled_from(sorted(hf.FAMILIES)), changes=st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_config_gives_a_model_or_one_clear_error(family: str, changes: dict[str, Any]) -> None:
    try:
        model = hf.from_config({"model_type": family, **BASE, **changes})
    except InputError as error:
        assert str(error) and error.where
    else:
        assert isinstance(model, ModelSpec)
        assert 0 < model_params(model).total < 10**30
        hash(model)


@settings(max_examples=200, deadline=None)
@given(text=st.one_of(st.text(), st.binary(), st.recursive(VALUES, lambda x: st.lists(x, max_size=3)).map(json.dumps)))
def test_any_text_gives_a_model_or_one_clear_error(text: str | bytes) -> None:
    with pytest.raises(InputError):
        hf.from_text(text)
