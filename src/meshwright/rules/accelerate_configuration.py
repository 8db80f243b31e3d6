"""MW-F4xx: faults of an Accelerate YAML file."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from meshwright.messages import N_, Text
from meshwright.rules.base import RuleContext
from meshwright.rules.configuration import Hit, configuration_rule
from meshwright.spec.configuration import Configuration
from meshwright.units import show

ACCELERATE = ("accelerate",)
FSDP = "fsdp_config.fsdp_"
# Classes of a transformer layer by family of the model (transformers 5.24, `_no_split_modules`; judged there).
LAYER_CLASSES: dict[str, tuple[str, ...]] = {
    "bert": ("BertLayer",), "roberta": ("RobertaLayer", "XLMRobertaLayer"), "bloom": ("BloomBlock",),
    "cohere": ("CohereDecoderLayer",), "dbrx": ("DbrxBlock",), "deepseek_v2": ("DeepseekV2DecoderLayer",),
    "deepseek_v3": ("DeepseekV3DecoderLayer",), "falcon": ("FalconDecoderLayer",), "gemma": ("GemmaDecoderLayer",),
    "gemma2": ("Gemma2DecoderLayer",), "gemma3_text": ("Gemma3DecoderLayer",), "glm": ("GlmDecoderLayer",),
    "glm4_moe": ("Glm4MoeDecoderLayer",), "gpt2": ("GPT2Block",), "gpt_neox": ("GPTNeoXLayer",),
    "gpt_oss": ("GptOssDecoderLayer",), "gptj": ("GPTJBlock",), "llama": ("LlamaDecoderLayer",),
    "mistral": ("MistralDecoderLayer",), "mixtral": ("MixtralDecoderLayer",), "mpt": ("MptBlock",),
    "nemotron": ("NemotronDecoderLayer",), "olmo2": ("Olmo2DecoderLayer",), "olmoe": ("OlmoeDecoderLayer",),
    "opt": ("OPTDecoderLayer",), "phi3": ("Phi3DecoderLayer",), "phimoe": ("PhimoeDecoderLayer",),
    "qwen2": ("Qwen2DecoderLayer",), "qwen2_moe": ("Qwen2MoeDecoderLayer",), "qwen3": ("Qwen3DecoderLayer",),
    "qwen3_moe": ("Qwen3MoeDecoderLayer",), "starcoder2": ("Starcoder2DecoderLayer",), "t5": ("T5Block",),
    "vit": ("ViTLayer",),
}  # fmt: skip


def fsdp(c: Configuration) -> int:
    """Version of FSDP; 0 where the file does not use it."""
    return (c.values.get(f"{FSDP}version") or 1) if c.values.get("distributed_type") == "FSDP" else 0


@configuration_rule(
    "MW-F401",
    title=N_("The class to wrap is one of the model"),
    reason=N_("FSDP makes a unit of each module of the named class; a class that the model does not have is "
              "refused, and "
              "without a class the whole model is one unit, gathered at once."),
    fix=N_("Name the class of the model's transformer layer."),
    condition="class in the layer classes of the model",
    source="netease-youdao/BCEmbedding#66; huggingface/accelerate#1943; tatsu-lab/stanford_alpaca#58; transformers "
           "_no_split_modules",
    where=f"{FSDP}transformer_layer_cls_to_wrap",
    formats=ACCELERATE,
)  # fmt: skip
def wrap_class(c: Configuration, context: RuleContext | None) -> Iterator[Hit]:
    """A class of another model, or an old spelling."""
    name = f"{FSDP}transformer_layer_cls_to_wrap"
    given = c.values.get(name)
    legal = LAYER_CLASSES.get(context.model.family, ()) if context else ()
    if not fsdp(c) or not isinstance(given, str) or not legal:
        return
    for part in (word.strip() for word in given.split(",")):
        if part and part not in legal:
            close = difflib.get_close_matches(part, legal, n=1, cutoff=0.0)
            text = Text(N_("the model has no class '{name}'"), name=part[:60])
            fix = Text(N_("did you mean {names}?"), names=", ".join(dict.fromkeys((*close, *legal))))
            yield Hit(name, text, fix, {"legal": list(legal)})


@configuration_rule(
    "MW-F402",
    title=N_("Loading on one rank needs the weights to be broadcast"),
    reason=N_("With RAM-efficient loading only the first rank reads the weights; without synchronising, the "
              "others train "
              "on random ones. Accelerate and transformers refuse it."),
    fix=N_("Set fsdp_sync_module_states to true."),
    condition="not cpu_ram_efficient_loading or sync_module_states",
    source="accelerate utils/launch.py; huggingface/transformers#25100, #33278",
    where=f"{FSDP}sync_module_states",
    formats=ACCELERATE,
)  # fmt: skip
def ram_efficient(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """One rank loads, nobody tells the others."""
    if fsdp(c) and c.on(f"{FSDP}cpu_ram_efficient_loading") and c.values.get(f"{FSDP}sync_module_states") is False:
        yield Hit(f"{FSDP}sync_module_states", Text(N_("fsdp_cpu_ram_efficient_loading without "
                                                       "fsdp_sync_module_states")),
                  None, {"legal": True})  # fmt: skip


@configuration_rule(
    "MW-F403",
    severity="info",
    title=N_("FSDP 2 keeps all weights in fp32 under mixed precision"),
    reason=N_("Accelerate's FSDP 2 path casts the whole module to fp32, also frozen weights that were loaded in "
              "16 bits; "
              "FSDP 1 casts what is trained. With LoRA the resident weights double."),
    fix=N_("For LoRA use FSDP 1, or load and train in bf16 without mixed precision."),
    condition="fsdp_version == 1, or mixed_precision == no, or all weights are trained",
    source="huggingface/accelerate#3844, #2674, #3474",
    where=f"{FSDP}version",
    formats=ACCELERATE,
)  # fmt: skip
def frozen_upcast(c: Configuration, context: RuleContext | None) -> Iterator[Hit]:
    """Said with the bytes, where the model is known."""
    if fsdp(c) != 2 or c.values.get("mixed_precision") not in ("bf16", "fp16"):
        return
    if context is None:
        yield Hit(f"{FSDP}version", Text(N_("all weights are resident in fp32, frozen ones too")))
        return
    s = context.strategy
    ranks = (s.shard or s.data * s.context) * s.tensor
    size = 4 * context.facts.weights / ranks
    text = N_("all weights are resident in fp32, frozen ones too: {size} on each device, {half} in 16 bits")
    yield Hit(f"{FSDP}version", Text(text, size=show(size, "B"), half=show(size / 2, "B")), None,
              {"fp32": size, "half": size / 2})  # fmt: skip


@configuration_rule(
    "MW-F404",
    severity="warning",
    title=N_("FSDP has units smaller than the model"),
    reason=N_("Without a wrap policy the whole model is one unit: every device gathers all of it at once."),
    fix=N_("Set fsdp_auto_wrap_policy to TRANSFORMER_BASED_WRAP."),
    condition="auto_wrap_policy != NO_WRAP",
    source="huggingface/accelerate#3474; accelerate utils/dataclasses.py FullyShardedDataParallelPlugin",
    where=f"{FSDP}auto_wrap_policy",
    formats=ACCELERATE,
)
def one_unit(c: Configuration, context: RuleContext | None) -> Iterator[Hit]:
    """No policy."""
    if fsdp(c) and c.values.get(f"{FSDP}auto_wrap_policy") in (None, "NO_WRAP"):
        yield Hit(f"{FSDP}auto_wrap_policy", Text(N_("no wrap policy: the whole model is gathered at once")))


@configuration_rule(
    "MW-F405",
    title=N_("FSDP settings belong to its version"),
    reason=N_("reshard_after_forward is true or false in FSDP 2; offloading checkpointed inputs needs FSDP 2 "
              "and activation "
              "checkpointing."),
    fix=N_("Use the setting of the version, or the other version."),
    condition="as FullyShardedDataParallelPlugin asserts",
    source="accelerate utils/dataclasses.py FullyShardedDataParallelPlugin.__post_init__",
    where=f"{FSDP}version",
    formats=ACCELERATE,
)  # fmt: skip
def of_the_version(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """What the plugin refuses."""
    version, v = fsdp(c), c.values
    reshard = v.get(f"{FSDP}reshard_after_forward")
    offload = c.on(f"{FSDP}activation_checkpointing_offload")
    table = (
        ("reshard_after_forward", version == 2 and reshard is not None and not isinstance(reshard, bool),
            "true, false"),
        ("activation_checkpointing_offload", offload and not c.on(f"{FSDP}activation_checkpointing"),
         "fsdp_activation_checkpointing"),
        ("activation_checkpointing_offload", offload and version == 1, "fsdp_version 2"),
    )  # fmt: skip
    for name, broken, needed in table:
        if version and broken:
            yield Hit(f"{FSDP}{name}", Text(N_("{name} needs {needed}"), name=f"fsdp_{name}", needed=needed))


@configuration_rule(
    "MW-F406",
    title=N_("The mesh of the file uses every process"),
    reason=N_(
        "Each process has one coordinate on every axis of the mesh, so the sizes multiply to the number of processes."
    ),
    fix=N_("Change one size so that the product equals num_processes."),
    condition="dp_replicate * dp_shard * tp * cp * sp == num_processes",
    source="accelerate parallelism_config.py ParallelismConfig",
    where="parallelism_config",
    formats=ACCELERATE,
)
def mesh_product(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """The product of the sizes against the processes."""
    names = ("dp_replicate", "dp_shard", "tp", "cp", "sp")
    sizes = [c.values.get(f"parallelism_config.parallelism_config_{name}_size") for name in names]
    if all(size is None for size in sizes) or not c.devices:
        return
    known = [size if isinstance(size, int) and size > 0 else 1 for size in sizes]
    product = 1
    for size in known:
        product *= size
    if product != c.devices:
        text = Text(N_("{product} = {sizes}, but there are {devices} processes"), product=product,
                    sizes=" × ".join(map(str, known)), devices=c.devices)  # fmt: skip
        rest = product // known[1]
        fix = Text(N_("dp_shard = {legal}"), legal=c.devices // rest) if c.devices % rest == 0 else None
        yield Hit("parallelism_config", text, fix, {"product": product, "devices": c.devices})


@configuration_rule(
    "MW-F407",
    severity="info",
    title=N_("A setting has an effect in this version of FSDP"),
    reason=N_("Sharding strategy, prefetch policies, original parameters and synchronising belong to FSDP 1; "
              "FSDP 2 drops "
              "them. reshard_after_forward as true or false belongs to FSDP 2."),
    fix=N_("Remove it, or use the version it belongs to."),
    condition="the setting belongs to fsdp_version",
    source="accelerate utils/dataclasses.py FullyShardedDataParallelPlugin.__post_init__",
    where=f"{FSDP}version",
    formats=ACCELERATE,
)  # fmt: skip
def of_the_other_version(c: Configuration, _: RuleContext | None) -> Iterator[Hit]:
    """Settings that FSDP drops."""
    version = fsdp(c)
    first = ("sharding_strategy", "backward_prefetch", "backward_prefetch_policy", "forward_prefetch",
        "use_orig_params",
             "sync_module_states")  # fmt: skip
    idle = [
        name for name in first if version == 2 and c.values.get(f"{FSDP}{name}") not in (None, False, "NO_PREFETCH")
    ]
    if version == 1 and isinstance(c.values.get(f"{FSDP}reshard_after_forward"), bool):
        idle.append("reshard_after_forward")
    for name in idle:
        text = N_("fsdp_{name} has no effect in FSDP {version}")
        yield Hit(f"{FSDP}{name}", Text(text, name=name, version=version), None, {"fsdp_version": version})
