"""Settings of a torchtitan TOML file, as 0.2.2 reads it, and those of 2024 that it dropped."""

from __future__ import annotations

from typing import Any

from meshwright.frameworks.fields import Field, Table
from meshwright.messages import N_, Text

FORMAT = "torchtitan"
VERSION = "0.2.2"
EARLY = "0.0.2"  # the release whose names files without a [parallelism] section have
SINCE, UNTIL = ">=0.1", "<0.1"
P, T = "parallelism", "training"
SCHEDULES = {"1F1B": "1f1b", "Interleaved1F1B": "interleaved", "GPipe": "gpipe", "InterleavedZeroBubble": "zb-h1",
             "ZBVZeroBubble": "zbv", "DualPipeV": "dualpipe"}  # fmt: skip


def _(name: str, kind: Any, meaning: str, *maps: str, **more: Any) -> Field:
    return Field(name=name, kind=kind, meaning=Text(meaning), maps=maps, **more)


def _section(name: str, about: str, *keys: str, unmodelled: bool = False) -> Field:
    return _(name, "table", about, keys=keys, closed=True, unmodelled=unmodelled)


MODEL = (
    _("model", "table", N_("the model"), closed=True, keys=("hf_assets_path", "tokenizer_path",
          "print_after_conversion",
                                                            "norm_type")),
    _("model.name", "text", N_("family of the model"), "model.name"),
    _("model.flavor", "text", N_("size of the model"), "model.name"),
    _("model.converters", "list", N_("changes of the model, e.g. matrices in 8 bits"), "job.precision",
      "strategy.precision"),
)  # fmt: skip

TRAINING = (
    _(T, "table", N_("batch, sequence, precision"), closed=True,
      keys=("dataset", "dataset_path", "gc_freq", "gc_debug", "max_norm", "warmup_steps", "mixed_precision_reduce",
            "dataloader", "dtype")),
    _(f"{T}.local_batch_size", "int", N_("sequences of a data-parallel rank in one forward pass"),
          "strategy.micro_batch",
      low=1, default=8, versions=SINCE),
    _(f"{T}.batch_size", "int", N_("sequences of a data-parallel rank in one forward pass"), "strategy.micro_batch",
      low=1, versions=UNTIL, instead=f"{T}.local_batch_size"),
    _(f"{T}.global_batch_size", "int", N_("sequences of one optimizer step, over all devices"), "job.global_batch",
      low=-1, default=-1, versions=SINCE),
    _(f"{T}.seq_len", "int", N_("tokens of a sequence"), "job.seq_len", low=1, default=2048),
    _(f"{T}.steps", "int", N_("steps of the run"), "job.tokens", low=1, default=10000),
    _(f"{T}.mixed_precision_param", "text", N_("number format"), "job.precision", "strategy.precision",
      choices=("bfloat16", "float32"), default="bfloat16"),
    _(f"{T}.enable_cpu_offload", "flag", N_("parameters, gradients and optimizer on the host"), "strategy.offload"),
    _(f"{T}.compile", "flag", N_("compilation"), unmodelled=True, versions=UNTIL, instead="compile.enable"),
    *(_(f"{T}.{name}", "int", meaning, maps, low=-1, versions=UNTIL, instead=f"{P}.{name}") for name, meaning, maps in (
        ("data_parallel_replicate_degree", N_("copies of the sharded model"), "strategy.data"),
        ("data_parallel_shard_degree", N_("devices over which the model is sharded"), "strategy.data"),
        ("tensor_parallel_degree", N_("tensor-parallel degree"), "strategy.tensor"))),
)  # fmt: skip

PARALLELISM = (
    _(P, "table", N_("degrees of the mesh"), closed=True,
      keys=("disable_loss_parallel", "module_fqns_per_model_part", "pipeline_parallel_schedule_csv",
            "pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers",
            "pipeline_parallel_expert_parallel_overlap", "context_parallel_load_balancer",
            "context_parallel_rotate_method", "expert_parallel_comm_backend"), unmodelled=True),
    _(f"{P}.data_parallel_replicate_degree", "int", N_("copies of the sharded model"), "strategy.data",
          "strategy.shard",
      low=1, default=1, versions=SINCE),
    _(f"{P}.data_parallel_shard_degree", "int", N_("devices over which the model is sharded"), "strategy.data",
      "strategy.shard", low=-1, default=-1, versions=SINCE),
    _(f"{P}.tensor_parallel_degree", "int", N_("tensor-parallel degree"), "strategy.tensor", low=1, default=1,
      versions=SINCE),
    _(f"{P}.pipeline_parallel_degree", "int", N_("stages of the pipeline"), "strategy.pipeline", low=1, default=1,
      versions=SINCE),
    _(f"{P}.pipeline_parallel_schedule", "text", N_("order of the passes"), "strategy.schedule",
      choices=tuple(SCHEDULES), values=SCHEDULES, default="1F1B", versions=SINCE),
    _(f"{P}.pipeline_parallel_layers_per_stage", "int", N_("layers of a model chunk"), "strategy.virtual", low=1,
      versions=SINCE),
    _(f"{P}.pipeline_parallel_microbatch_size", "int", N_("sequences of a micro-batch of the pipeline"),
      "strategy.micro_batch", low=1, default=1, versions=SINCE),
    _(f"{P}.context_parallel_degree", "int", N_("devices that share one sequence"), "strategy.context", low=1,
          default=1,
      versions=SINCE),
    _(f"{P}.expert_parallel_degree", "int", N_("expert-parallel degree"), "strategy.expert", low=1, default=1,
      versions=SINCE),
    _(f"{P}.expert_tensor_parallel_degree", "int", N_("tensor-parallel degree inside experts"),
          "strategy.expert_tensor",
      low=1, default=1, versions=SINCE),
    _(f"{P}.fsdp_reshard_after_forward", "text", N_("whether parameters are sharded again after the forward pass"),
      "strategy.sharding", choices=("default", "always", "never"), default="default", versions=SINCE),
    _(f"{P}.enable_async_tensor_parallel", "flag", N_("overlap tensor-parallel communication"),
          "strategy.overlap_tensor",
      versions=SINCE),
    _("experimental", "table", N_("settings that may change"), closed=True,
      keys=("custom_import", "custom_args_module", "custom_model_path")),
    _("experimental.context_parallel_degree", "int", N_("devices that share one sequence"), "strategy.context", low=1,
      versions=UNTIL, instead=f"{P}.context_parallel_degree"),
    _("experimental.pipeline_parallel_degree", "int", N_("stages of the pipeline"), "strategy.pipeline", low=1,
      versions=UNTIL, instead=f"{P}.pipeline_parallel_degree"),
    _("experimental.pipeline_parallel_schedule", "text", N_("order of the passes"), "strategy.schedule",
      choices=tuple(SCHEDULES), values=SCHEDULES, versions=UNTIL, instead=f"{P}.pipeline_parallel_schedule"),
    _("experimental.enable_async_tensor_parallel", "flag", N_("overlap tensor-parallel communication"),
      "strategy.overlap_tensor", versions=UNTIL, instead=f"{P}.enable_async_tensor_parallel"),
)  # fmt: skip

MEMORY = (
    _("activation_checkpoint", "table", N_("what is recomputed"), closed=True, unmodelled=True,
      keys=("selective_ac_option", "per_op_sac_force_recompute_mm_shapes_by_fqns", "early_stop", "memory_budget",
            "visualize_memory_budget_pareto", "preserve_rng_state", "determinism_check", "debug")),
    _("activation_checkpoint.mode", "text", N_("what is recomputed"), "strategy.recompute",
      choices=("none", "selective", "full", "memory_budget"), default="selective"),
    _("optimizer", "table", N_("the optimizer"), closed=True,
      keys=("lr", "beta1", "beta2", "eps", "weight_decay", "implementation", "early_step_in_backward", "fused")),
    _("optimizer.name", "text", N_("name of the optimizer"), "job.optimizer", choices=("AdamW", "Adam"),
          default="AdamW"),
    _("float8", "table", N_("matrices in 8 bits"), versions=UNTIL, instead="quantize.linear.float8", closed=True,
      unmodelled=True, keys=("enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp",
                             "scaling_type_input", "scaling_type_weight", "scaling_type_grad_output")),
    _("float8.enable_float8_linear", "flag", N_("matrices in 8 bits"), "job.precision", "strategy.precision",
      versions=UNTIL, instead="model.converters"),
)  # fmt: skip

AROUND = (
    _section("quantize", N_("how 8-bit matrices are scaled"), "linear", "grouped_mm", unmodelled=True),
    _section("compile", N_("compilation"), "enable", "components", "backend", unmodelled=True),
    _section("job", N_("what is printed, measured or checked"), "config_file", "dump_folder", "description",
        "print_config",
             "save_config_file", "custom_config_module", "print_args", "use_for_integration_test"),
    _section("profiling", N_("what is printed, measured or checked"), "enable_profiling", "save_traces_folder",
             "profile_freq", "profiler_active", "profiler_warmup", "enable_memory_snapshot",
             "save_memory_snapshot_folder"),
    _section("metrics", N_("where measurements are written"), "log_freq", "enable_tensorboard",
        "disable_color_printing",
             "save_tb_folder", "save_for_all_ranks", "enable_wandb"),
    _section("lr_scheduler", N_("the learning-rate schedule"), "warmup_steps", "total_steps", "decay_ratio",
        "decay_type",
             "min_lr_factor"),
    _section("checkpoint", N_("how checkpoints are written"), "enable", "enable_ft_dataloader_checkpoints", "folder",
             "interval", "initial_load_path", "initial_load_model_only", "initial_load_in_hf",
             "initial_load_in_hf_quantized", "last_save_model_only", "last_save_in_hf", "export_dtype", "async_mode",
             "keep_latest_k", "load_step", "exclude_from_loading", "enable_first_step_checkpoint",
             "create_seed_checkpoint", "load_only"),
    _section("comm", N_("timeouts and traces of communication"), "init_timeout_seconds", "train_timeout_seconds",
             "trace_buf_size", "save_traces_folder", "save_traces_file_prefix", "mode"),
    _section("memory_estimation", N_("what is printed, measured or checked"), "enable", "disable_fake_mode"),
    _section("fault_tolerance", N_("restarts, faults and stragglers"), "enable", "process_group",
             "process_group_timeout_ms", "replica_id", "group_size", "min_replica_size", "semi_sync_method"),
    _section("validation", N_("what is printed, measured or checked"), "enable", "dataset", "dataset_path",
             "local_batch_size", "seq_len", "freq", "steps", "dataloader"),
    _section("debug", N_("what is printed, measured or checked"), "seed", "deterministic", "deterministic_warn_only",
             "moe_force_load_balance"),
)  # fmt: skip

TABLE = Table(FORMAT, (*MODEL, *TRAINING, *PARALLELISM, *MEMORY, *AROUND), strict_from="0.0")

# Names and flavors of models, and the catalogue's.
MODELS = {
    ("llama3", "8B"): "llama-3.1-8b", ("llama3", "70B"): "llama-3.1-70b", ("llama3", "405B"): "llama-3.1-405b",
    ("llama4", "17bx16e"): "llama-4-scout", ("llama4", "17bx128e"): "llama-4-maverick",
    ("deepseek_v3", "671B"): "deepseek-v3", ("deepseek_v3", "16B"): "deepseek-v2-lite",
    ("qwen3", "0.6B"): "qwen3-0.6b", ("qwen3", "1.7B"): "qwen3-1.7b", ("qwen3", "4B"): "qwen3-4b",
    ("qwen3", "8B"): "qwen3-8b", ("qwen3", "14B"): "qwen3-14b", ("qwen3", "32B"): "qwen3-32b",
    ("qwen3", "30B-A3B"): "qwen3-30b-a3b", ("qwen3", "235B-A22B"): "qwen3-235b-a22b",
}  # fmt: skip
