"""Arguments of Megatron-LM that matter to planning; those that do not stand in arguments.toml, by what they are about.

Names and kinds are those of the parser in the repository (`megatron/training/arguments.py`, core 0.20);
tools/megatron_arguments.py lists them again from a checkout.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from meshwright.frameworks.fields import Field, Table
from meshwright.messages import N_, Text

FORMAT = "megatron"
VERSION = "0.20.0"
DEEPSPEED = N_("only in Megatron-DeepSpeed")


def _(name: str, kind: Any, meaning: str, *maps: str, **more: Any) -> Field:
    return Field(name=name, kind=kind, meaning=Text(meaning), maps=maps, **more)


MODEL = (
    _("--num-layers", "int", N_("transformer layers"), "model.layers", low=1, aliases=("--encoder-num-layers",)),
    _("--hidden-size", "int", N_("width of the model"), "model.hidden", low=1),
    _("--ffn-hidden-size", "int", N_("width of the MLP"), "model.mlp", low=1),
    _("--num-attention-heads", "int", N_("attention heads"), "model.heads", low=1),
    _("--group-query-attention", "flag", N_("fewer key/value heads than heads"), "model.kv_heads"),
    _("--num-query-groups", "int", N_("key/value heads"), "model.kv_heads", low=1, default=1),
    _("--kv-channels", "int", N_("width of one head"), "model.head_dim", low=1),
    _("--max-position-embeddings", "int", N_("longest sequence"), "model.positions", low=1),
    _("--position-embedding-type", "text", N_("how positions are told"), "model.positions",
      choices=("learned_absolute", "rope", "mrope", "yarn", "relative", "none"), default="learned_absolute"),
    _("--use-rotary-position-embeddings", "flag", N_("rotary positions (old spelling)"), "model.positions",
      instead="--position-embedding-type rope"),
    _("--swiglu", "flag", N_("gated MLP"), "model.mlp"),
    _("--quick-geglu", "flag", N_("gated MLP with quick GELU"), "model.mlp"),
    _("--squared-relu", "flag", N_("squared ReLU"), "model.mlp"),
    _("--normalization", "text", N_("kind of normalisation"), "model.norm", choices=("LayerNorm", "RMSNorm"),
      default="LayerNorm"),
    _("--qk-layernorm", "flag", N_("normalise queries and keys"), "model.attention"),
    _("--disable-bias-linear", "flag", N_("no biases"), "model.bias"),
    _("--add-qkv-bias", "flag", N_("biases of queries, keys and values"), "model.bias"),
    _("--window-size", "any", N_("sliding window"), "model.attention"),
    _("--untie-embeddings-and-output-weights", "flag", N_("a head of its own"), "model.head"),
    _("--vocab-size", "int", N_("tokens of the vocabulary"), "model.vocab", low=1),
    _("--padded-vocab-size", "int", N_("tokens of the vocabulary, padded"), "model.vocab", low=1),
    _("--tokenizer-type", "text", N_("tokenizer, which decides the vocabulary"), "model.vocab"),
    _("--make-vocab-size-divisible-by", "int", N_("padding of the vocabulary"), unmodelled=True, low=1, default=128),
    _("--num-experts", "int", N_("experts of a layer"), "model.experts", low=1),
    _("--moe-router-topk", "int", N_("experts of a token"), "model.experts", low=1, default=2),
    _("--moe-ffn-hidden-size", "int", N_("width of an expert"), "model.experts", low=1),
    _("--moe-shared-expert-intermediate-size", "int", N_("width of the shared experts"), "model.experts", low=1),
    _("--moe-layer-freq", "any", N_("which layers have experts"), "model.experts", default=1),
    _("--moe-router-num-groups", "int", N_("groups of experts"), "model.experts", low=1),
    _("--moe-router-group-topk", "int", N_("groups a token may reach"), "model.experts", low=1),
    _("--multi-latent-attention", "flag", N_("multi-latent attention"), "model.attention"),
    _("--q-lora-rank", "int", N_("rank of the queries"), "model.attention", low=1),
    _("--kv-lora-rank", "int", N_("rank of keys and values"), "model.attention", low=1, default=32),
    _("--qk-head-dim", "int", N_("width of a head without positions"), "model.attention", low=1, default=128),
    _("--qk-pos-emb-head-dim", "int", N_("width of a head with positions"), "model.attention", low=1, default=64),
    _("--v-head-dim", "int", N_("width of a value head"), "model.attention", low=1, default=128),
    _("--mtp-num-layers", "int", N_("multi-token-prediction modules"), "model.mtp_layers", low=0),
)  # fmt: skip

JOB = (
    _("--seq-length", "int", N_("tokens of a sequence"), "job.seq_len", low=1),
    _("--global-batch-size", "int", N_("sequences of one optimizer step, over all devices"), "job.global_batch", low=1),
    _("--bf16", "flag", N_("bf16 on or off"), "job.precision", "strategy.precision"),
    _("--fp16", "flag", N_("fp16 on or off"), "job.precision", "strategy.precision"),
    _("--fp8-format", "text", N_("matrices in 8 bits"), "job.precision", "strategy.precision",
      choices=("e4m3", "hybrid")),
    _("--fp8-recipe", "text", N_("how 8-bit matrices are scaled"), "job.precision", "strategy.precision",
      choices=("tensorwise", "delayed", "mxfp8", "blockwise", "custom"), default="delayed"),
    _("--fp4-format", "text", N_("matrices in 4 bits"), "job.precision", "strategy.precision", choices=("e2m1",)),
    _("--optimizer", "text", N_("the optimizer"), "job.optimizer", default="adam"),
    _("--use-precision-aware-optimizer", "flag", N_("moments and master weights in other types"), "job.optimizer"),
    _("--exp-avg-dtype", "text", N_("type of the first moment"), "job.optimizer", default="fp32"),
    _("--exp-avg-sq-dtype", "text", N_("type of the second moment"), "job.optimizer", default="fp32"),
    _("--main-params-dtype", "text", N_("type of the master weights"), "job.optimizer", default="fp32"),
    _("--main-grads-dtype", "text", N_("type of the accumulated gradients"), unmodelled=True),
    _("--train-iters", "int", N_("steps of the run"), "job.tokens", low=1),
    _("--train-samples", "int", N_("sequences of the run"), "job.tokens", low=1),
    _("--hidden-dropout", "number", N_("dropout behind attention and MLP"), "job.dropout", low=0, high=1, default=0.1),
    _("--attention-dropout", "number", N_("dropout of attention"), "job.dropout", low=0, high=1, default=0.1),
)  # fmt: skip

STRATEGY = (
    _("--tensor-model-parallel-size", "int", N_("tensor-parallel degree"), "strategy.tensor", low=1, default=1),
    _("--pipeline-model-parallel-size", "int", N_("stages of the pipeline"), "strategy.pipeline", low=1, default=1),
    _("--num-layers-per-virtual-pipeline-stage", "int", N_("layers of a model chunk"), "strategy.virtual", low=1),
    _("--num-virtual-stages-per-pipeline-rank", "int", N_("model chunks of a pipeline rank"), "strategy.virtual",
      low=1),
    _("--decoder-first-pipeline-num-layers", "int", N_("layers of the first stage"), "strategy.layers_per_stage", low=0,
      aliases=("--num-layers-in-first-pipeline-stage",)),
    _("--decoder-last-pipeline-num-layers", "int", N_("layers of the last stage"), "strategy.layers_per_stage", low=0,
      aliases=("--num-layers-in-last-pipeline-stage",)),
    _("--account-for-embedding-in-pipeline-split", "flag", N_("the embedding counts as a layer"),
      "strategy.layers_per_stage"),
    _("--account-for-loss-in-pipeline-split", "flag", N_("the head counts as a layer"), "strategy.layers_per_stage"),
    _("--pipeline-model-parallel-layout", "text", N_("which layers each stage has"), "strategy.layers_per_stage",
      "strategy.virtual"),
    _("--context-parallel-size", "int", N_("devices that share one sequence"), "strategy.context", low=1, default=1),
    _("--expert-model-parallel-size", "int", N_("expert-parallel degree"), "strategy.expert", low=1, default=1),
    _("--expert-tensor-parallel-size", "int", N_("tensor-parallel degree inside experts"), "strategy.expert_tensor",
      low=1),
    _("--sequence-parallel", "flag", N_("shard activations between tensor-parallel regions"),
      "strategy.sequence_parallel"),
    _("--micro-batch-size", "int", N_("sequences of one forward pass of a device"), "strategy.micro_batch", low=1),
    _("--use-distributed-optimizer", "flag", N_("shard the optimizer over data-parallel ranks"), "strategy.sharding"),
    _("--use-torch-fsdp2", "flag", N_("PyTorch's FSDP"), "strategy.sharding"),
    _("--use-megatron-fsdp", "flag", N_("Megatron's own FSDP"), "strategy.sharding", aliases=("--use-custom-fsdp",)),
    _("--data-parallel-sharding-strategy", "text", N_("what Megatron's FSDP shards"), "strategy.sharding",
      choices=("no_shard", "optim", "optim_grads", "optim_grads_params"), default="optim_grads_params"),
    _("--num-distributed-optimizer-instances", "int", N_("copies of the sharded optimizer"), "strategy.shard", low=1,
      default=1),
    _("--recompute-granularity", "text", N_("what is recomputed"), "strategy.recompute",
      choices=("full", "selective")),
    _("--recompute-activations", "flag", N_("selective recomputation"), "strategy.recompute"),
    _("--checkpoint-activations", "flag", N_("full recomputation (old spelling)"), "strategy.recompute",
      instead="--recompute-granularity full"),
    _("--recompute-modules", "list", N_("modules that selective recomputes"), "strategy.recompute_ops"),
    _("--recompute-method", "text", N_("which layers are recomputed"), "strategy.recompute",
      choices=("uniform", "block")),
    _("--recompute-num-layers", "int", N_("how many layers are recomputed together"), "strategy.recompute", low=1),
    _("--overlap-grad-reduce", "flag", N_("overlap gradient reduction with the backward pass"),
      "strategy.overlap_grad_reduce"),
    _("--overlap-param-gather", "flag", N_("overlap the parameter gather with the forward pass"),
      "strategy.overlap_param_gather"),
    _("--tp-comm-overlap", "flag", N_("overlap tensor-parallel communication"), "strategy.overlap_tensor"),
    _("--overlap-moe-expert-parallel-comm", "flag", N_("overlap the all-to-all of experts"), "strategy.overlap_expert"),
    _("--no-overlap-p2p-communication", "flag", N_("do not overlap pipeline communication"), unmodelled=True),
    _("--optimizer-cpu-offload", "flag", N_("optimizer states on the host"), "strategy.offload"),
    _("--optimizer-offload-fraction", "number", N_("share of the optimizer that is offloaded"), unmodelled=True, low=0,
      high=1, default=1.0),
    _("--cpu-offloading-num-layers", "int", N_("layers whose activations go to the host"), "strategy.offload", low=0,
      default=0),
)  # fmt: skip

FORK = (
    _("--deepspeed", "flag", DEEPSPEED, "strategy.framework"),
    _("--zero-stage", "int", N_("ZeRO stage"), "strategy.sharding", choices=(0, 1, 2, 3)),
    _("--no-pipeline-parallel", "flag", N_("no pipeline engine"), "strategy.pipeline"),
    _("--deepspeed-config", "text", N_("the DeepSpeed file beside these arguments"), aliases=("--deepspeed_config",)),
    _("--deepspeed-activation-checkpointing", "flag", N_("full recomputation by DeepSpeed"), "strategy.recompute"),
    _("--ds-sequence-parallel-size", "int", N_("devices that share one sequence (Ulysses)"), "strategy.context", low=1),
)  # fmt: skip

# What these groups of arguments are about.
ABOUT: dict[str, Text] = {
    "architecture": Text(N_("details of the architecture without effect on size or speed")),
    "memory-or-time": Text(N_("kernels, buffers and overlap: the estimate takes the profile of the software")),
    "training": Text(N_("schedule of the run, data, seeds")),
    "reporting": Text(N_("what is printed, measured or checked")),
    "checkpoints": Text(N_("how checkpoints are written")),
    "resilience": Text(N_("restarts, faults and stragglers")),
    "other-programs": Text(N_("inference, reinforcement learning, vision and retrieval")),
}


def _others() -> tuple[Field, ...]:
    """Arguments of no meaning for planning, or that the estimate does not take up, from the list beside this file."""
    data = tomllib.loads((Path(__file__).parent / "arguments.toml").read_text("utf-8"))
    known = {name for f in (*MODEL, *JOB, *STRATEGY, *FORK) for name in (f.name, *f.aliases)}
    out = []
    for about, kinds in data["about"].items():
        for kind, names in kinds.items():
            out += [
                Field(name=f"--{name}", kind=kind, meaning=ABOUT[about], unmodelled=about == "memory-or-time")
                for name in names
                if f"--{name}" not in known
            ]
    return tuple(out)


TABLE = Table(FORMAT, (*MODEL, *JOB, *STRATEGY, *FORK, *_others()), strict_from=VERSION)
