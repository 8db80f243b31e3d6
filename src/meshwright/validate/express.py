"""A measured run in the words of the engine: model, cluster, job, strategy. Or the reason why it cannot be said."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from meshwright.catalog import load, models
from meshwright.catalog.hardware import MAX_DEVICES, accelerator, cluster
from meshwright.engine.activations import groups_of_model, recompute_groups
from meshwright.engine.operators import RECOMPUTE_GROUPS
from meshwright.messages import N_, Text
from meshwright.spec import Attention, Block, Job, Mlp, ModelSpec, Moe, MultiLatentAttention, Strategy
from meshwright.spec.cluster import Accelerator, Cluster
from meshwright.spec.job import PRECISIONS
from meshwright.spec.model import Mixer
from meshwright.spec.plan import Problem
from meshwright.spec.strategy import RECOMPUTES, SHARDINGS
from meshwright.validate.megatron_tests import ffn_width, is_functional_test, layers_per_stage, settings_of
from meshwright.validate.rows import MeasuredRun


class Skipped(Exception):
    """Why a run cannot be predicted."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Expressed:
    """A run as a problem, and the strategies it may have been: more than one where the recompute is not stated."""

    problem: Problem
    strategies: tuple[Strategy, ...]


# What a count of a run may be: beyond, it is a slip of the pen and would only make the engine work for hours.
_LIMITS: dict[str, tuple[int, int]] = {
    "n_layers": (1, 4096), "hidden": (1, 2**20), "n_heads": (1, 2**14), "n_kv_heads": (1, 2**14),
    "ffn_hidden": (1, 2**22), "vocab": (1, 2**24), "seq_len": (1, 2**27), "n_experts": (0, 2**14), "top_k": (1, 2**10),
    "moe_ffn_hidden": (1, 2**22), "shared_experts": (0, 2**10), "dense_layers": (0, 4096), "gpus_per_node": (1, 1024),
    "n_gpus": (1, MAX_DEVICES), "tp": (1, 2**14), "pp": (1, 4096), "vpp": (1, 4096), "cp": (1, 2**14), "ep": (1, 2**14),
    "etp": (1, 2**14),
    "gated_mlp": (0, 1), "seq_parallel": (0, 1), "dp": (1, MAX_DEVICES),
    "micro_batch": (1, 2**16), "global_batch": (1, 10**8), "year": (1, 9999),
}  # fmt: skip
_PADDED_GPT2_VOCAB = 50304


def express(run: MeasuredRun) -> Expressed:
    """The run as the engine takes it. Raises `Skipped`, or the errors of the catalogue."""
    if run.tier in ("C", "L"):
        raise Skipped(Text(_UNTRUSTED[run.tier], tier=run.tier))
    for column, value in run.malformed:
        if column in _BESIDE:
            continue
        raise Skipped(Text(N_("column {column} holds '{value}', which is no number"), column=column, value=value))
    for name in _FLAGS:
        count(run, name, 0)
    device = accelerator(run.accelerator) if run.accelerator else None
    if device is None:
        raise Skipped(Text(N_("{column} is not stated"), column="accelerator"))
    where = cluster_of(run, device)
    stacked = framework_of(run, device)
    model = model_of(run)
    job = job_of(run, device)
    strategy = strategy_of(run, stacked, where, model)
    batch = job.global_batch
    if batch % (strategy.data * strategy.micro_batch):
        raise Skipped(
            Text(
                N_("a batch of {batch} does not split over {data} data ranks in micro-batches of {micro}"),
                batch=batch, data=strategy.data, micro=strategy.micro_batch,
            )
        )  # fmt: skip
    problem = Problem(model=model, cluster=where, job=replace(job, precision=strategy.precision))
    choices = tuple(choice for s in virtuals_of(run, strategy, model) for choice in recomputes_of(run, s, model))
    return Expressed(problem=problem, strategies=choices)


_BESIDE = ("params_b", "year", "step_time_s", "peak_mem_gb")  # columns that a prediction of the rate can do without
_FLAGS = ("gated_mlp", "seq_parallel")  # 1 or 0
_USUAL = ("ffn_hidden", "gated_mlp", "vocab", "n_kv_heads", "precision")  # columns with a usual value
_UNTRUSTED = {
    "C": N_("tier {tier}: the row contradicts itself"),
    "L": N_("tier {tier}: low-rank or quantised fine-tuning is not modelled"),
}


def count(run: MeasuredRun, name: str, default: int | None = None) -> int:
    """A whole number of the row, inside what makes sense."""
    value = getattr(run, name)
    if value is None:
        if default is None:
            raise Skipped(Text(N_("{column} is not stated"), column=name))
        return default
    low, high = _LIMITS[name]
    if not low <= value <= high:
        raise Skipped(
            Text(
                N_("{column} = {value} is outside what makes sense here: from {low} to {high}"),
                column=name, value=f"{value:.6g}", low=low, high=high,
            )
        )  # fmt: skip
    return int(value)


# ---------------------------------------------------------------------------------------------- model

# Architectures that the columns have no words for; only the catalogue's own file of the model can tell them.
_BEYOND_COLUMNS = re.compile(
    r"hybrid|encoder.?decoder|per-layer|\(global|chunked|\d:\d sliding|mamba|deltanet|linear attention", re.IGNORECASE
)


def model_of(run: MeasuredRun) -> ModelSpec:
    """The architecture a row states; where it cannot say all of it, the catalogue's model of exactly that name."""
    beyond = _beyond_columns(run)
    return _from_columns(run) if beyond is None else _from_catalogue(run, beyond)


def _beyond_columns(run: MeasuredRun) -> Text | None:
    """Why the columns do not tell the architecture; None where they do."""
    if found := _BEYOND_COLUMNS.search(run.other_arch):
        what = run.other_arch[found.start() :][:40]
        return Text(N_("the columns cannot describe the architecture: {what}"), what=what)
    for name in ("n_layers", "hidden", "n_heads"):
        if getattr(run, name) is None:
            return Text(N_("{column} is not stated"), column=name)
    return None


def taken_as_usual(run: MeasuredRun) -> tuple[str, ...]:
    """Columns of an expressed row that say nothing and for which the usual was taken.

    The usual: an MLP with a gate, four times as wide as the hidden size; GPT-2's vocabulary, padded; as many KV heads
    as heads; bf16.
    """
    told = _beyond_columns(run) is not None  # by the catalogue
    empty = [name for name in _USUAL if getattr(run, name) in (None, "") and not (told and name != "precision")]
    return tuple(name for name in empty if not (name == "n_kv_heads" and "MLA" in run.other_arch))


def _from_catalogue(run: MeasuredRun, reason: Text) -> ModelSpec:
    known = load.exact("models", run.model[:200]) if run.model else None
    if known is None:
        raise Skipped(reason)
    model = models.from_entry(models.model_entry(known))
    for column, value in (("n_layers", model.layers), ("hidden", model.hidden)):
        if getattr(run, column) not in (None, value):
            raise Skipped(
                Text(
                    N_("{column} is {stated}, and {value} in the catalogue's {model}"),
                    column=column, stated=getattr(run, column), value=value, model=model.name,
                )
            )  # fmt: skip
    return model


def _from_columns(run: MeasuredRun) -> ModelSpec:
    hidden, layers, other = count(run, "hidden"), count(run, "n_layers"), run.other_arch
    gated = run.gated_mlp != 0
    # Plain GPT: LayerNorm, biases, tied embeddings. The squared-ReLU models (Nemotron) have none of these.
    plain = not gated and "squared-relu" not in other.lower()
    norm: Any = "layer" if plain else "rms"
    width = ffn_width(run, count(run, "ffn_hidden", 4 * hidden))
    mlp = Mlp(width=width, gated=gated, bias=plain, activation="silu" if gated else "gelu")
    dense = [Block(mixer=mixer, mlp=mlp, norm=norm) for mixer in mixers_of(run, hidden, bias=plain)]
    if not count(run, "n_experts", 0):
        blocks = tuple(dense)
        pattern = tuple(i % len(dense) for i in range(layers))
    else:
        moe = moe_of(run, width, gated)
        sparse = [Block(mixer=block.mixer, mlp=moe, norm=norm) for block in dense]
        blocks = (*dense, *sparse)
        pattern = tuple(i % len(dense) + len(dense) * routed for i, routed in enumerate(_routed(run, layers)))
    return ModelSpec(
        name=run.model[:200] or run.id[:200],
        family="gpt" if plain else "row",
        hidden=hidden,
        vocab=count(run, "vocab", _PADDED_GPT2_VOCAB),
        blocks=blocks,
        pattern=pattern,
        tied_embeddings="untied" not in other and ("tied" in other or plain),
        learned_positions=count(run, "seq_len") if "learned pos" in other or _tested(run, "learned_positions") else 0,
        final_norm=norm,
    )


def _tested(run: MeasuredRun, setting: str) -> bool:
    """Whether a run is a functional test of Megatron-LM with that setting."""
    return is_functional_test(run) and bool(getattr(settings_of(run), setting))


def _routed(run: MeasuredRun, layers: int) -> list[bool]:
    """Which layers route tokens to experts: all but the first dense ones, or every second."""
    first = count(run, "dense_layers", 0)
    if first > layers:
        raise Skipped(Text(N_("{first} dense layers of {layers}"), first=first, layers=layers))
    every = 2 if re.search(r"MoE every 2nd", run.other_arch) else 1
    return [i >= first and i % every == every - 1 for i in range(layers)]


def mixers_of(run: MeasuredRun, hidden: int, *, bias: bool) -> list[Mixer]:
    """The attention of a row; two kinds where layers alternate between a window and the whole sequence."""
    heads, other = count(run, "n_heads"), run.other_arch
    if "MLA" in other:
        return [_latent(other, heads)]
    head_dim = _stated(r"head_dim (\d+)", other) or hidden // heads
    if not 1 <= head_dim <= 2**14:
        raise Skipped(Text(N_("{hidden} channels in {heads} heads"), hidden=hidden, heads=heads))
    window = _stated(r"sliding window (\d+)", other)
    full = Attention(
        heads=heads,
        kv_heads=min(count(run, "n_kv_heads", heads), heads),
        head_dim=head_dim,
        qkv_bias=bias or "biases" in other,
        out_bias=bias or "biases" in other,
        qk_norm="head" if "qk-norm" in other.lower() or _tested(run, "qk_norm") else "none",
        sinks="attention sinks" in other,
    )
    if window is None:
        return [full]
    local = replace(full, window=min(window, 2**27))
    return [local, full] if "alternating" in other else [local]


def _stated(pattern: str, text: str) -> int | None:
    """A number in free text; absent, zero or one that no architecture has is None."""
    found = re.search(pattern, text)
    return int(found.group(1)) if found and len(found.group(1)) <= 9 and int(found.group(1)) else None


def _latent(other: str, heads: int) -> MultiLatentAttention:
    """MLA by the ranks the row states; those it leaves out are DeepSeek-V3's."""

    def rank(pattern: str, default: int) -> int:
        return min(_stated(pattern, other) or default, 2**20)

    return MultiLatentAttention(
        heads=heads,
        q_rank=rank(r"q_lora\D*(\d+)", 1536) if "q_lora" in other or "kv_lora" not in other else None,
        kv_rank=rank(r"kv_lora\D*(\d+)", 512),
        nope_dim=rank(r"qk(?:_nope)?\D*(\d+)", 128),
        rope_dim=rank(r"(?:qk_rope|qk\D*\d+\+)\D*(\d+)", 64),
        v_dim=rank(r"v_head\D*(\d+)", 128),
    )


def moe_of(run: MeasuredRun, dense_width: int, gated: bool) -> Moe:
    """The experts of a row."""
    experts, top_k = count(run, "n_experts"), count(run, "top_k")
    if top_k > experts:
        raise Skipped(Text(N_("{top_k} of {experts} experts"), top_k=top_k, experts=experts))
    width = count(run, "moe_ffn_hidden", dense_width)
    shared = count(run, "shared_experts", 0)
    return Moe(
        experts=experts, top_k=top_k, width=width, gated=gated, shared_width=shared * width, shared_count=max(shared, 1)
    )


# ---------------------------------------------------------------------------------------------- cluster, job


@lru_cache(maxsize=4096)
def _cluster(device: str, count: int, slices: int, node_size: int | None, nic_bandwidth: float | None) -> Cluster:
    where = cluster(f"{device}:{count}", slices=slices if slices > 1 else None, node_size=node_size,
                    nic_bandwidth=nic_bandwidth)  # fmt: skip
    # Less than a card of 100 Gb/s each: several accelerators share one, over a fabric that the row does not name.
    shared = nic_bandwidth is not None and nic_bandwidth < SLOWEST_CARD and not where.torus
    return replace(where, fabric="shared-cards") if shared else where


SLOWEST_CARD = 100e9 / 8  # B/s


def cluster_of(run: MeasuredRun, device: Accelerator) -> Cluster:
    """The devices of a row, with its own host size and network where it states them."""
    devices = count(run, "n_gpus")
    gbps = run.inter_gbps_per_accelerator
    nic = gbps / 8 * 1e9 if gbps else None
    if device.torus is not None:
        pod = 1
        for side in device.torus.largest:
            pod *= side
        slices = devices // pod if devices > pod and devices % pod == 0 else 1
        return _cluster(device.id, devices // slices, slices, None, nic)
    usual = _cluster(device.id, devices, 1, None, nic)
    node = count(run, "gpus_per_node", usual.node_size)
    if node == usual.node_size or node >= devices == usual.node_size:
        return usual
    return _cluster(device.id, devices, 1, node, nic)


def job_of(run: MeasuredRun, device: Accelerator) -> Job:
    """Batch, sequence, optimizer and software of a row."""
    return Job(
        seq_len=count(run, "seq_len"),
        global_batch=count(run, "global_batch"),
        optimizer=optimizer_of(run.optimizer),
        software=software_of(run, device),
        dropout=_tested(run, "dropout"),
        expert_imbalance=1.0 if "balanced" in run.notes else None,
    )


def optimizer_of(text: str) -> Any:
    """The optimizer that a source's words mean; Adam where they say nothing else."""
    words = text.lower()
    if "8-bit" in words or "8bit" in words:
        return "adamw-8bit"
    for name in ("muon", "adafactor", "lion"):
        if name in words:
            return name
    if "sgd" in words:
        return "sgd-momentum" if "momentum" in words else "sgd"
    return "adamw-bf16" if re.search(r"bf16[- ]?(states|optimizer)", words) else "adamw"


# Framework of a row → (software profile, framework whose rules of partition hold).
_STACKS: dict[str, tuple[str, str]] = {
    "megatron": ("megatron-core", "megatron"), "nanotron": ("nanotron", "megatron"),
    "internevo": ("internevo", "megatron"), "colossalai": ("megatron-core", "megatron"),
    "megatron-deepspeed": ("megatron-deepspeed", "deepspeed"), "other": ("megatron-core", "megatron"),
    "fsdp": ("fsdp-eager", "fsdp"), "torchtitan": ("fsdp2", "fsdp"), "deepspeed": ("deepspeed", "deepspeed"),
    "maxtext": ("maxtext", "jax"), "jax": ("maxtext", "jax"),
}  # fmt: skip
# A framework nobody named before, by the words in its name.
_KIN = (("deepspeed", "deepspeed"), ("torch", "torchtitan"), ("fsdp", "fsdp"), ("jax", "jax"), ("text", "maxtext"),
        ("megatron", "megatron"), ("nemo", "megatron"))  # fmt: skip


def _stack(run: MeasuredRun, device: Accelerator) -> tuple[str, str]:
    name = run.framework.lower()
    if name not in _STACKS or name == "other":
        kin = "jax" if device.kind == "tpu" else "other"
        name = next((known for word, known in _KIN if word in name), kin)
    return _STACKS[name]


def framework_of(run: MeasuredRun, device: Accelerator) -> str:
    """The framework whose way of dividing work the run has."""
    return _stack(run, device)[1]


def software_of(run: MeasuredRun, device: Accelerator) -> str:
    """The software profile of a run: Megatron by the year of its run, its own tests by their name."""
    if is_functional_test(run):
        return settings_of(run).software
    profile = _stack(run, device)[0]
    if run.framework.lower() == "torchtitan" and re.search(r"\beager\b", run.notes):
        return "fsdp2-eager"
    if profile == "deepspeed" and "liger" in run.notes.lower():
        return "deepspeed-liger"
    year = count(run, "year", 2024)
    if run.framework.lower() == "megatron" and year <= 2023:
        return "megatron-2022" if year <= 2022 else "megatron-2023"
    return profile


# ---------------------------------------------------------------------------------------------- strategy

_FP8 = re.compile(r"fp8(-(tensorwise|current|rowwise|blockwise|delayed))?")


def precision_of(run: MeasuredRun) -> str:
    """The number format as the engine names it; bf16 where the row says nothing."""
    name = run.precision.lower() or "bf16"
    name = "fp8" if _FP8.fullmatch(name) else name
    if name not in PRECISIONS:
        raise Skipped(Text(N_("precision {what} is not modelled"), what=name[:40]))
    return name


def strategy_of(run: MeasuredRun, framework: str, where: Cluster, model: ModelSpec) -> Strategy:
    """The mesh and settings a row states; recompute as `recomputes_of` says."""
    tensor, pipeline, context = (count(run, name, 1) for name in ("tp", "pp", "cp"))
    devices, virtual, expert = count(run, "n_gpus"), count(run, "vpp", 1), count(run, "ep", 1)
    data = devices // (tensor * pipeline * context)
    if data * tensor * pipeline * context != devices or count(run, "dp", data) != data:
        raise Skipped(Text(N_("the degrees of the mesh do not multiply to {devices} devices"), devices=devices))
    # Megatron may count the embedding and the head as layers of their stages: Llama-3.1's 126 are 128 chunks.
    if pipeline * virtual > model.layers + 2:
        raise Skipped(
            Text(N_("{stages} pipeline stages of {layers} layers"), stages=pipeline * virtual, layers=model.layers)
        )
    expert_tensor = count(run, "etp", tensor)  # Megatron's default: as outside the experts
    if run.etp is None and (devices // pipeline) % (expert * expert_tensor):
        expert_tensor = 1
    if model.is_moe and (devices // pipeline) % (expert * expert_tensor):
        raise Skipped(Text(N_("the degrees of the mesh do not multiply to {devices} devices"), devices=devices))
    sharding = sharding_of(run, framework)
    return Strategy(
        framework=framework,
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        virtual=virtual,
        context=context,
        expert=expert,
        expert_tensor=expert_tensor,
        sharding=sharding,
        shard=shard_of(run, where, tensor, data * context),
        sequence_parallel=tensor > 1 and sequence_parallel_of(run),
        micro_batch=count(run, "micro_batch"),
        schedule="interleaved" if virtual > 1 else "1f1b",
        layers_per_stage=layers_per_stage(run),
        offload=offload_of(run),
        precision=precision_of(run),
        loss=loss_of(run, where.accelerator),
        **overlaps_of(run),
    )


def sequence_parallel_of(run: MeasuredRun) -> bool:
    """As stated; unstated, what users of the framework have: Megatron-DeepSpeed forked before it existed."""
    if run.seq_parallel is not None:
        return run.seq_parallel != 0
    return run.framework.lower() != "megatron-deepspeed"


def sharding_of(run: MeasuredRun, framework: str) -> str:
    """What the data ranks divide; unstated, what the framework does when nobody asks."""
    name = run.sharding.lower()
    if name == "hsdp":
        return "zero3"
    if not name:
        return "zero3" if framework in ("fsdp", "jax") else "none"
    if name not in SHARDINGS:
        raise Skipped(Text(N_("sharding {what} is not modelled"), what=name[:40]))
    return name


def shard_of(run: MeasuredRun, where: Cluster, tensor: int, ranks: int) -> int:
    """Ranks that share one sharded copy: those the note names, else (HSDP's usual way) those of a host."""
    if is_functional_test(run) and run.sharding.lower() == "zero1":
        instances = settings_of(run).optimizer_instances
        return ranks // instances if instances > 1 and ranks % instances == 0 else 0
    if run.sharding.lower() == "hsdp":
        size = _stated(r"fsdp (\d+)", run.sharding_note) or where.node_size
    elif re.search(r"within (a |the |\d+-GPU )?(node|host)|= node", run.sharding_note):
        size = max(where.node_size // tensor, 1)
    else:
        return 0
    return size if size < ranks and ranks % size == 0 else 0


def offload_of(run: MeasuredRun) -> str:
    """What lies in host memory by the row's own note."""
    note = f"{run.sharding_note} {run.optimizer}".lower()
    if "param offload" in note:
        return "parameters"
    return "optimizer" if "offload" in note or "cpu adam" in note else "none"


def loss_of(run: MeasuredRun, device: Accelerator) -> str:
    """How logits and loss are computed: chunked where the notes say so; torchtitan compiles it since 2025."""
    if is_functional_test(run):
        return settings_of(run).loss
    if re.search(r"liger|tiled (logits|loss|compute)", run.notes, re.IGNORECASE):
        return "chunked"
    framework = run.framework.lower()
    if framework == "nanotron":  # fp32 logits, their difference from the largest and its exponential: three tensors
        return "plain"
    if framework != "torchtitan":
        return "auto"
    if (run.year or 0) >= 2026:  # pytorch/torchtitan pull request 2937: head and loss over a chunk of tokens at a time
        return "chunked"
    return "compiled" if device.architecture == "blackwell" or "torch 2.9" in run.notes else "auto"


def overlaps_of(run: MeasuredRun) -> dict[str, Any]:
    """Overlap that the notes switch on or off; NeMo's recipes since 2024 hide tensor-parallel traffic unasked."""
    notes, tuned = run.notes, run.framework.lower() == "megatron" and count(run, "year", 2024) >= 2024
    off = "all comm overlap OFF" in notes
    return {
        "overlap_grad_reduce": not off,
        "overlap_param_gather": not off,
        "overlap_tensor": bool(re.search(r"overlap ON|async TP", notes)) or (tuned and "overlap OFF" not in notes),
        "dispatcher": dispatcher_of(notes),
        "graphs": graphs_of(run),
        "overlap_expert": bool(re.search(r"a2a[_ ]overlap", notes, re.IGNORECASE)) and not off,
    }


def dispatcher_of(notes: str) -> str:
    """What carries tokens to experts: named, or Megatron's plain all-to-all where a recipe is given in full."""
    named = re.search(r"(?:dispatcher )?(deepep|hybridep|a2a(?=;))", notes, re.IGNORECASE)
    if named:
        return {"a2a": "alltoall"}.get(named.group(1).lower(), named.group(1).lower())
    return "alltoall" if "perf preset" in notes else "auto"


def graphs_of(run: MeasuredRun) -> str:
    """Whether the iteration, or part of it, is replayed from CUDA graphs: named, or usual in recipes not shown."""
    if "full_iteration" in run.notes:
        return "full"
    if re.search(r"CUDA graphs?\b(?!-flags)", run.notes):
        return "partial"
    hidden = run.framework.lower() == "megatron" and run.tier == "A-" and count(run, "year", 2024) >= 2025
    return "partial" if hidden else "none"


def virtuals_of(run: MeasuredRun, strategy: Strategy, model: ModelSpec) -> tuple[Strategy, ...]:
    """The strategy with the interleaving the row states, or with and without where Megatron could have used it.

    Runs of tier A state all their settings: an empty cell means none there.
    """
    stages, each = strategy.pipeline, model.layers // strategy.pipeline
    open_choice = run.vpp is None and run.tier != "A" and run.framework.lower() == "megatron" and stages > 1
    micro_batches = count(run, "global_batch") // (strategy.data * strategy.micro_batch)
    if not open_choice or model.layers % stages or each == 1 or micro_batches % stages:
        return (strategy,)
    return (replace(strategy, virtual=each, schedule="interleaved"), strategy)


# What tuned recipes run again before they give up a whole layer: cheap to compute, large to keep.
_CHEAP = ("core_attn", "layernorm", "mlp_act", "moe_act", "mla_up_proj")


def recomputes_of(run: MeasuredRun, strategy: Strategy, model: ModelSpec) -> tuple[Strategy, ...]:
    """The strategy with the recompute the row states, or with each one it may have been, the cheapest first."""
    mode, _, names = run.recompute.lower().partition(":")
    if mode in ("", "unknown"):
        choices = [replace(strategy, recompute=choice) for choice in RECOMPUTES]
        if strategy.framework == "megatron":
            cheap = tuple(name for name in _CHEAP if name in groups_of_model(model))
            choices.insert(2, replace(strategy, recompute="selective", recompute_ops=cheap))
        return tuple(choices)
    if mode not in RECOMPUTES:
        raise Skipped(Text(N_("recompute {what} is not modelled"), what=run.recompute[:40]))
    if not names:
        return (replace(strategy, recompute=mode),)
    return (replace(strategy, recompute=mode, recompute_ops=_groups(re.split(r"[,+]\s*", names))),)


# Megatron has one module of activations, that of the experts.
_SPELLINGS = {"act": "moe_act", "shared_expert": "shared_experts"}


def _groups(names: Iterable[str]) -> tuple[str, ...]:
    groups = recompute_groups(Strategy(recompute_ops=tuple(_SPELLINGS.get(name, name) for name in names)))
    for name in groups:
        if name not in RECOMPUTE_GROUPS:
            raise Skipped(Text(N_("recompute {what} is not modelled"), what=name[:40]))
    return tuple(dict.fromkeys(groups))
