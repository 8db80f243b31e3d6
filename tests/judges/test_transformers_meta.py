"""Parameter counts against the real classes of transformers, instantiated on the meta device.

Three comparisons: the class's default config; variants that flip every switch that costs parameters, and released
sizes; and configs from which everything inessential was removed, so that our defaults must be the class's defaults.
Run with `.venv-torch/bin/pytest -m judge_torch tests/judges`.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from meshwright.catalog import hf, models
from meshwright.catalog.hf.view import REQUIRED, Config
from meshwright.engine.params import model_params

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

pytestmark = pytest.mark.judge_torch
torch = pytest.importorskip("torch", reason="torch is not installed (extra `torch`)")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra `torch`)")

# What a default config lacks before the class itself can be built.
MISSING: dict[str, dict[str, Any]] = {
    "nemotron": {"num_key_value_heads": 8},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128, "num_experts": 8, "moe_topk": 2},
    "deepseek_v2": {"num_experts_per_tok": 6},
}
# Only names of ours: the class is another family's.
NAMES_ONLY = {"kimi_k2": "deepseek_v3"}
DEFAULTS = sorted(set(hf.FAMILIES) - set(NAMES_ONLY))

BIAS = {"attention_bias": True, "mlp_bias": True}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {**BIAS, "num_key_value_heads": 8, "head_dim": 96, "tie_word_embeddings": True}),
    ("llama", {"hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128, "num_key_value_heads": 8,
               "intermediate_size": 53248, "vocab_size": 128256, "head_dim": None}),
    ("granite", BIAS),
    ("qwen2", {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
               "intermediate_size": 29568, "vocab_size": 152064}),
    ("qwen3", {"attention_bias": True, "hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64,
               "num_key_value_heads": 8, "intermediate_size": 25600}),
    ("qwen3_moe", {"hidden_size": 4096, "num_hidden_layers": 94, "num_attention_heads": 64, "head_dim": 128,
                   "moe_intermediate_size": 1536, "intermediate_size": 12288}),
    ("qwen3_moe", {"attention_bias": True, "mlp_only_layers": [0, 3], "decoder_sparse_step": 2}),
    ("qwen2_moe", {"qkv_bias": False, "mlp_only_layers": [1], "decoder_sparse_step": 2}),
    ("qwen2_moe", {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
                   "intermediate_size": 18944, "moe_intermediate_size": 2560, "num_experts": 64,
                   "num_experts_per_tok": 8, "shared_expert_intermediate_size": 20480}),
    ("qwen3_next", {"attention_bias": True, "full_attention_interval": 2, "mlp_only_layers": [0]}),
    ("mixtral", {"hidden_size": 6144, "num_hidden_layers": 56, "num_attention_heads": 48, "intermediate_size": 16384,
                 "vocab_size": 32768}),
    ("gemma", {"attention_bias": True, "num_key_value_heads": 1}),
    ("gemma2", {"attention_bias": True, "num_hidden_layers": 46, "hidden_size": 4608, "num_attention_heads": 32,
                "num_key_value_heads": 16, "head_dim": 128, "intermediate_size": 36864}),
    ("gemma3_text", {"attention_bias": True, "num_hidden_layers": 62, "hidden_size": 5376, "num_attention_heads": 32,
                     "num_key_value_heads": 16, "head_dim": 128, "intermediate_size": 21504}),
    ("phi", {"qk_layernorm": True, "num_key_value_heads": 8}),
    ("phimoe", {"attention_bias": True, "lm_head_bias": True}),
    ("gpt2", {"n_embd": 1600, "n_layer": 48, "n_head": 25, "n_inner": 5000, "tie_word_embeddings": False}),
    ("gpt_bigcode", {"multi_query": False}),
    ("gpt_neo", {"attention_types": [[["global", "local"], 16]], "num_layers": 32, "hidden_size": 2560,
                 "num_heads": 20}),
    ("gpt_neox", {"attention_bias": False, "use_parallel_residual": False}),
    ("bloom", {"hidden_size": 14336, "n_layer": 70, "n_head": 112}),
    ("opt", {"hidden_size": 12288, "num_hidden_layers": 96, "num_attention_heads": 96, "ffn_dim": 49152,
             "word_embed_proj_dim": 12288}),
    ("opt", {"word_embed_proj_dim": 512, "do_layer_norm_before": False, "hidden_size": 1024,
             "num_attention_heads": 16}),
    ("opt", {"enable_bias": False, "layer_norm_elementwise_affine": False}),
    ("falcon", {"bias": True, "multi_query": False, "hidden_size": 4096, "num_attention_heads": 64,
                "tie_word_embeddings": False}),
    ("falcon", {"new_decoder_architecture": True, "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8,
                "num_hidden_layers": 60, "ffn_hidden_size": 32768}),
    ("falcon", {"parallel_attn": False, "hidden_size": 2048, "num_attention_heads": 32, "bias": True,
                "alibi": True, "multi_query": False, "ffn_hidden_size": 8192}),
    ("falcon", {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1, "hidden_size": 4096,
                "num_attention_heads": 32, "num_kv_heads": 8}),
    ("olmo", {"attention_bias": True}),
    ("olmo2", {"attention_bias": True, "num_key_value_heads": 8}),
    ("olmoe", {"attention_bias": True, "num_key_value_heads": 4}),
    ("cohere", {"use_qk_norm": True, "num_key_value_heads": 8, "attention_bias": True}),
    ("cohere2", {"attention_bias": True, "num_key_value_heads": 8}),
    ("stablelm", {"use_qkv_bias": True, "qk_layernorm": True, "use_parallel_residual": True,
                  "num_key_value_heads": 8}),
    ("starcoder2", {"use_bias": False, "tie_word_embeddings": False}),
    ("nemotron", {**BIAS, "head_dim": 192, "num_key_value_heads": 8}),
    ("nemotron_h", {"layers_block_type": ["linear_attention", "mlp", "full_attention", "moe"] * 3, "use_bias": True,
                    "mlp_bias": True, "attention_bias": True}),
    ("nemotron_h", {"layers_block_type": ["linear_attention", "moe"] * 2, "moe_latent_size": 1024,
                    "use_conv_bias": False}),
    ("granitemoe", {"attention_bias": True, "num_key_value_heads": 8}),
    ("granitemoeshared", {"shared_intermediate_size": 2048}),
    ("granitemoehybrid", {"layer_types": ["linear_attention", "full_attention"] * 16, "attention_bias": True,
                          "mamba_proj_bias": True, "num_key_value_heads": 8}),
    ("granitemoehybrid", {"num_local_experts": 0, "mamba_conv_bias": False}),
    ("deepseek_v2", {"q_lora_rank": None, "first_k_dense_replace": 1, "num_experts_per_tok": 6,
                     "attention_bias": True, "mlp_bias": False}),
    ("deepseek_v2", {"hidden_size": 5120, "num_hidden_layers": 60, "num_attention_heads": 128,
                     "intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160,
                     "num_experts_per_tok": 6, "first_k_dense_replace": 1}),
    ("deepseek_v3", {"attention_bias": True, "n_shared_experts": 2, "q_lora_rank": None}),
    ("glm", {"attention_bias": False}),
    ("glm4_moe", {"use_qk_norm": True, "attention_bias": True, "head_dim": 128, "hidden_size": 5120,
                  "num_hidden_layers": 92, "first_k_dense_replace": 3, "n_routed_experts": 160,
                  "moe_intermediate_size": 1536}),
    ("gpt_oss", {"num_hidden_layers": 24, "num_local_experts": 32}),
    ("llama4_text", {"interleave_moe_layer_step": 2, "num_local_experts": 128, "attention_bias": True}),
    ("jamba", {"num_hidden_layers": 72, "hidden_size": 8192, "num_attention_heads": 64, "intermediate_size": 24576,
               "mamba_dt_rank": "auto", "mamba_proj_bias": True, "mamba_conv_bias": False}),
    ("mamba", {"use_bias": True, "use_conv_bias": False, "expand": 3}),
    ("mamba2", {"use_bias": True, "use_conv_bias": False, "hidden_size": 2560, "num_heads": 80, "n_groups": 1,
                "tie_word_embeddings": True}),
    ("bamba", {"attn_layer_indices": [3, 9], "mlp_bias": True, "attention_bias": True, "mamba_proj_bias": True}),
    ("ernie4_5", {"use_bias": True}),
    ("ernie4_5_moe", {"use_bias": True, "moe_layer_start_index": 3, "moe_layer_end_index": 20}),
    ("ernie4_5_moe", {"moe_layer_interval": 2, "moe_layer_end_index": -1}),
    ("minimax", {"layer_types": ["linear_attention"] * 7 + ["full_attention"], "num_hidden_layers": 8,
                 "head_dim": 96}),
    ("smollm3", BIAS),
    ("seed_oss", {"attention_out_bias": True, "mlp_bias": True}),
    ("arcee", BIAS),
    ("helium", BIAS),
    ("apertus", {"attention_bias": True}),
    ("persimmon", {"qk_layernorm": False}),
    ("hunyuan_v1_dense", {"head_dim": 64, "attention_bias": True}),
    ("t5", {"d_model": 1024, "d_ff": 65536, "d_kv": 128, "num_heads": 128, "num_layers": 24}),
    ("t5", {"num_layers": 4, "num_decoder_layers": 7, "feed_forward_proj": "gated-gelu"}),
    ("umt5", {"num_layers": 3, "relative_attention_num_buckets": 16}),
    ("bert", {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}),
    ("vit", {"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16, "intermediate_size": 5120,
             "patch_size": 14, "qkv_bias": False}),
    ("whisper", {"d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20,
                 "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120,
                 "num_mel_bins": 128}),
]  # fmt: skip


def real_config(family: str, keys: dict[str, Any]) -> Any:
    """The family's config object; `keys` go in as a config.json would give them."""
    config = transformers.AutoConfig.for_model(family, **keys)
    if family == "dbrx":  # 5.24 reads attn_config.rope_theta, which its own config class no longer has
        config.attn_config.rope_theta = 10000.0
    return config


def real_model(config: Any) -> Any:
    """The class a trainer would build, on the meta device."""
    masked, seq2seq = transformers.AutoModelForMaskedLM, transformers.AutoModelForSeq2SeqLM
    auto: Any = transformers.AutoModelForCausalLM
    if config.model_type in ("t5", "mt5", "umt5"):
        auto = seq2seq
    elif config.model_type == "whisper":
        auto = transformers.AutoModelForSpeechSeq2Seq
    elif config.model_type in ("bert", "roberta", "distilbert"):
        auto = masked
    elif config.model_type == "vit":
        auto = transformers.AutoModel
    with torch.device("meta"):
        return auto.from_config(config)


def counts(model: Any) -> tuple[int, int]:
    """All parameters (shared ones once), and those of the token embedding."""
    total = sum(p.numel() for p in model.parameters())
    return total, 0 if model.config.model_type == "vit" else model.get_input_embeddings().weight.numel()


def as_json(config: Any) -> dict[str, Any]:
    """The config as its config.json would be read."""
    data: dict[str, Any] = json.loads(json.dumps(config.to_dict(), default=str))
    return data


def compare(family: str, keys: dict[str, Any]) -> None:
    config = real_config(family, keys)
    total, table = counts(real_model(config))
    ours = model_params(hf.from_config(as_json(config)))
    assert ours.total == total
    assert ours.embedding == table


@pytest.mark.parametrize("family", DEFAULTS)
def test_default_config(family: str) -> None:
    compare(family, MISSING.get(family, {}))


@pytest.mark.parametrize("family", DEFAULTS)
def test_the_class_alone_names_the_family(family: str) -> None:
    """A config without `model_type` whose `architectures` holds the class: read as the same family."""
    config = real_config(family, MISSING.get(family, {}))
    assert hf.family_of_class(type(real_model(config)).__name__) == family


@pytest.mark.parametrize(("family", "keys"), VARIANTS, ids=[f"{f}-{i}" for i, (f, _) in enumerate(VARIANTS)])
def test_variant(family: str, keys: dict[str, Any]) -> None:
    compare(family, {**MISSING.get(family, {}), **keys})


class _Recorder(Config):
    """Notes which keys are essential (no default)."""

    essential_keys: set[str]

    def default(self, key: str, value: Any) -> Any:
        if value is REQUIRED:
            self.essential_keys.add(key)
            raise LookupError(key)
        return super().default(key, value)


def essentials(family: str, full: dict[str, Any]) -> dict[str, Any]:
    """The smallest config that the reader accepts."""
    given: dict[str, Any] = {"model_type": family}
    for _ in range(40):
        view = _Recorder(given, where="judge", family=family)
        view.essential_keys = set()
        try:
            hf.reader(family)(view)
        except LookupError:
            key = view.essential_keys.pop()
            key = "layer_types" if key == "hybrid_override_pattern" else key  # the class names the layers one by one
            name = Config(full, where="judge", family=family).spelled(key)
            given[name] = full[name]
        else:
            return given
    raise AssertionError("more than forty essential keys")


@pytest.mark.parametrize("family", [f for f in DEFAULTS if f != "dbrx"])
def test_defaults_are_the_class_defaults(family: str) -> None:
    """What we assume for a partial config is what the class assumes: same blocks, windows, widths."""
    full = as_json(real_config(family, MISSING.get(family, {})))
    partial = essentials(family, full)
    completed = as_json(real_config(family, {k: v for k, v in partial.items() if k != "model_type"}))
    ours, theirs = hf.from_config(partial), hf.from_config(completed)
    for field in ("hidden", "vocab", "tied_embeddings", "learned_positions", "final_norm", "head_bias", "extras",
                  "mtp_layers", "max_positions"):  # fmt: skip
        assert getattr(ours, field) == getattr(theirs, field), field
    assert [ours.blocks[i] for i in ours.pattern] == [theirs.blocks[i] for i in theirs.pattern]


@pytest.mark.parametrize("family", [f for f in DEFAULTS if f in ("gemma2", "gemma3_text", "cohere2", "gpt_oss",
                                                                 "olmo3", "exaone4", "llama4_text")])  # fmt: skip
def test_windows_follow_layer_types(family: str) -> None:
    config = as_json(real_config(family, {}))
    full = config.pop("layer_types")
    config.pop("no_rope_layers", None)
    ours = hf.from_config(config)
    assert [ours.blocks[i].mixer.window is None for i in ours.pattern] == [t == "full_attention" for t in full]


@pytest.mark.parametrize("id", [i for i in models.model_ids() if "config" in models.model_entry(i).data])
def test_catalogue_model(id: str) -> None:
    """Every catalogue entry with an HF config, at its full size."""
    keys = dict(models.model_entry(id).data["config"])
    family = NAMES_ONLY.get(keys["model_type"], keys["model_type"])
    if family == "vit":
        keys["id2label"] = {str(i): str(i) for i in range(keys.pop("num_labels"))}
    config = real_config(family, {k: v for k, v in keys.items() if k not in ("model_type", "architectures")})
    if family == "vit":
        with torch.device("meta"):
            total = counts_only(transformers.AutoModelForImageClassification.from_config(config))
    else:
        total = counts(real_model(config))[0]
    assert model_params(models.model(id)).total == total


def counts_only(model: Any) -> int:
    """All parameters."""
    return sum(p.numel() for p in model.parameters())


def test_multimodal_config_is_followed_to_its_text() -> None:
    for outer, key in (("gemma3", "text_config"), ("llama4", "text_config"), ("mistral3", "text_config")):
        config = transformers.AutoConfig.for_model(outer)
        text = getattr(config, key)
        ours = hf.from_config(as_json(config))
        assert model_params(ours).total == counts(real_model(text))[0]
        assert ours.remarks
