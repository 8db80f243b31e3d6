"""Settings of a DeepSpeed JSON file, as DeepSpeed 0.19.8 reads it; judges compare the table with its own classes."""

from __future__ import annotations

from typing import Any

from meshwright.frameworks.fields import Field, Table
from meshwright.messages import N_, Text

FORMAT = "deepspeed"
VERSION = "0.19.8"  # the version whose parser judges what is written
ZERO = "zero_optimization"

SHARDING = {0: "none", 1: "zero1", 2: "zero2", 3: "zero3"}
OPTIMIZERS = {
    "AdamW": "adamw", "Lion": "lion", "Muon": "muon", "SGD": "sgd",
}  # fmt: skip
# What else `optimizer.type` may be; Adam is AdamW here unless adam_w_mode is off, and its states are the same.
ALSO_OPTIMIZERS = {
    "adam": "adamw", "adamw": "adamw", "muadam": "adamw", "muadamw": "adamw", "lion": "lion", "muon": "muon",
    "sgd": "sgd", "musgd": "sgd", "adagrad": "sgd-momentum", "lamb": "adamw",
}  # fmt: skip


def _(name: str, kind: Any, meaning: str, **more: Any) -> Field:
    return Field(name=name, kind=kind, meaning=Text(meaning), **more)


BATCH = (
    _("train_batch_size", "int", N_("sequences of one optimizer step, over all devices"),
      maps=("job.global_batch",), low=1, beside="train_batch_size (calculated)"),
    _("train_micro_batch_size_per_gpu", "int", N_("sequences of one forward pass of a device"),
      maps=("strategy.micro_batch",), low=1, beside="per_device_train_batch_size"),
    _("gradient_accumulation_steps", "int", N_("forward passes per optimizer step"),
      maps=("job.global_batch",), low=1, beside="gradient_accumulation_steps"),
    _("sequence_parallel_size", "int", N_("devices that share one sequence (Ulysses)"),
      maps=("strategy.context",), low=1),
    _("managed_gradient_accumulation", "flag", N_("who counts the forward passes of a step")),
)  # fmt: skip

SHARD = (
    _(ZERO, "table", N_("ZeRO: what the data-parallel ranks shard"), closed=True),
    _(f"{ZERO}.stage", "int", N_("ZeRO stage"), maps=("strategy.sharding",), choices=(0, 1, 2, 3), values=SHARDING,
      default=0),
    _(f"{ZERO}.overlap_comm", "flag", N_("overlap gradient reduction with the backward pass"),
      maps=("strategy.overlap_grad_reduce",), needs="sharded"),
    _(f"{ZERO}.zero_hpz_partition_size", "int", N_("devices over which a second copy of the parameters is "
                                                   "sharded (ZeRO++)"),
      maps=("strategy.shard",), low=0, default=1, needs="stage3"),
    _(f"{ZERO}.mics_shard_size", "int", N_("devices that share one sharded copy (MiCS)"),
      maps=("strategy.shard",), versions="<0.19.8", needs="stage3", default=-1),
    _(f"{ZERO}.mics_hierarchical_params_gather", "flag", N_("gather inside nodes first (MiCS)"), unmodelled=True,
      versions="<0.19.8", needs="stage3"),
    _(f"{ZERO}.zeropp_loco_param", "any", N_("error feedback of quantized gradients"), unmodelled=True,
      versions="<0.19.8"),
    _(f"{ZERO}.reduce_bucket_size", "int", N_("elements reduced at a time"), unmodelled=True, low=1, default=5e8,
      beside="hidden²"),
    _(f"{ZERO}.allgather_bucket_size", "int", N_("elements gathered at a time"), unmodelled=True, low=0, default=5e8),
    _(f"{ZERO}.stage3_prefetch_bucket_size", "int", N_("elements gathered ahead of use"), unmodelled=True, low=0,
      default=5e7, aliases=(f"{ZERO}.prefetch_bucket_size",), needs="stage3", beside="0.9·hidden²"),
    _(f"{ZERO}.stage3_param_persistence_threshold", "int", N_("smaller parameters are never sharded"), unmodelled=True,
      low=0, default=1e5, aliases=(f"{ZERO}.param_persistence_threshold",), needs="stage3", beside="10·hidden"),
    _(f"{ZERO}.stage3_model_persistence_threshold", "int", N_("elements that may stay unsharded"), unmodelled=True,
      low=0, aliases=(f"{ZERO}.model_persistence_threshold",), needs="stage3"),
    _(f"{ZERO}.stage3_max_live_parameters", "int", N_("gathered elements kept on a device"), unmodelled=True, low=0,
      default=1e9, aliases=(f"{ZERO}.max_live_parameters",), needs="stage3"),
    _(f"{ZERO}.stage3_max_reuse_distance", "int", N_("elements after which a parameter is released"), unmodelled=True,
      low=0, default=1e9, aliases=(f"{ZERO}.max_reuse_distance",), needs="stage3"),
    _(f"{ZERO}.sub_group_size", "int", N_("elements that the optimizer updates at a time"), unmodelled=True, low=0,
      default=1e9, needs="stage3"),
    _(f"{ZERO}.contiguous_gradients", "flag", N_("copy gradients into one buffer"), unmodelled=True),
    _(f"{ZERO}.reduce_scatter", "flag", N_("reduce-scatter gradients instead of all-reducing them"), unmodelled=True),
    _(f"{ZERO}.zero_quantized_weights", "flag", N_("gather 8-bit weights (ZeRO++)"), unmodelled=True, needs="stage3"),
    _(f"{ZERO}.zero_quantized_nontrainable_weights", "flag", N_("keep frozen weights in 8 bits"), unmodelled=True,
      needs="stage3"),
    _(f"{ZERO}.zero_quantized_gradients", "flag", N_("reduce 4-bit gradients (ZeRO++)"), unmodelled=True,
      needs="stage3"),
    _(f"{ZERO}.use_multi_rank_bucket_allreduce", "flag", N_("join the buckets of several ranks"), unmodelled=True),
    _(f"{ZERO}.allgather_partitions", "flag", N_("all-gather instead of broadcasts after the step"), unmodelled=True),
    _(f"{ZERO}.round_robin_gradients", "flag", N_("spread gradient copies to the host over ranks"), unmodelled=True),
    _(f"{ZERO}.parameter_alignment", "flag", N_("pad each parameter to 16 bytes"), unmodelled=True),
    _(f"{ZERO}.memory_efficient_linear", "flag", N_("linear layers that keep less for the backward pass"),
      unmodelled=True, needs="stage3"),
    _(f"{ZERO}.stage3_module_granularity_threshold", "int", N_("fetch small modules whole"), unmodelled=True,
      aliases=(f"{ZERO}.module_granularity_threshold",), needs="stage3"),
    _(f"{ZERO}.stage3_use_all_reduce_for_fetch_params", "flag", N_("fetch parameters by all-reduce"), unmodelled=True,
      aliases=(f"{ZERO}.use_all_reduce_for_fetch_params",), needs="stage3"),
    _(f"{ZERO}.stage3_allgather_sequential", "flag", N_("fetch parameters one by one"), unmodelled=True,
      aliases=(f"{ZERO}.allgather_sequential",), needs="stage3"),
    _(f"{ZERO}.leaf_module", "table", N_("modules that ZeRO-3 gathers whole (experts)"), needs="stage3", closed=True),
    _(f"{ZERO}.leaf_module.classes", "list", N_("classes of such modules")),
    _(f"{ZERO}.leaf_module.names", "list", N_("names of such modules")),
    _(f"{ZERO}.leaf_module.name_suffixes", "list", N_("endings of the names of such modules")),
    _(f"{ZERO}.stage3_gather_16bit_weights_on_model_save", "flag", N_("gather whole weights when saving"),
      aliases=(f"{ZERO}.gather_16bit_weights_on_model_save", f"{ZERO}.stage3_gather_fp16_weights_on_model_save"),
      needs="stage3"),
    _(f"{ZERO}.compute_grad_norm", "flag", N_("compute the gradient norm")),
    _(f"{ZERO}.load_from_fp32_weights", "flag", N_("load master weights from fp32 copies")),
    _(f"{ZERO}.elastic_checkpoint", "flag", N_("checkpoints for another number of ranks")),
    _(f"{ZERO}.zenflow", "table", N_("asynchronous updates with offload (ZenFlow)"), unmodelled=True, closed=True,
      keys=("topk_ratio", "select_strategy", "select_interval", "update_interval", "overlap_step", "offload",
            "auto_ratio", "full_warm_up_rounds", "pt_reserved_cores_perc", "steps_per_epoch")),
    _(f"{ZERO}.cpu_offload_param", "flag", N_("offload parameters (old spelling)"), instead=f"{ZERO}.offload_param"),
    _(f"{ZERO}.cpu_offload", "flag", N_("offload the optimizer (old spelling)"), instead=f"{ZERO}.offload_optimizer"),
    _(f"{ZERO}.cpu_offload_use_pin_memory", "flag", N_("pin host memory (old spelling)"),
      instead=f"{ZERO}.offload_optimizer.pin_memory"),
    *(_(f"{ZERO}.{name}", "flag", N_("checks and behaviour without effect on memory or time")) for name in (
        "ignore_unused_parameters", "legacy_stage1", "pipeline_loading_checkpoint", "override_module_apply",
        "log_trace_cache_warnings", "enable_sanity_checks", "save_muon_momentum_buffer_in_memory")),
)  # fmt: skip

OFFLOAD = (
    _(f"{ZERO}.offload_optimizer", "table", N_("where optimizer states live"), needs="sharded", closed=True),
    _(f"{ZERO}.offload_optimizer.device", "text", N_("device of the optimizer states"), maps=("strategy.offload",),
      choices=("none", "cpu", "nvme"), default="none", needs="sharded"),
    _(f"{ZERO}.offload_optimizer.ratio", "number", N_("share of the optimizer that is offloaded"), unmodelled=True,
      low=0, high=1, default=1.0),
    _(f"{ZERO}.offload_param", "table", N_("where parameters live"), needs="stage3", closed=True),
    _(f"{ZERO}.offload_param.device", "text", N_("device of the parameters"), maps=("strategy.offload",),
      choices=("none", "cpu", "nvme"), default="none", needs="stage3"),
    *(_(f"{ZERO}.{part}.{key}", kind, N_("how offloaded values are staged"), unmodelled=True)
      for part, keys in (
          ("offload_optimizer", (("nvme_path", "text"), ("buffer_count", "int"), ("pin_memory", "flag"),
                                 ("pipeline_read", "flag"), ("pipeline_write", "flag"), ("fast_init", "flag"),
                                 ("super_offload", "flag"), ("cpuadam_cores_perc", "number"))),
          ("offload_param", (("nvme_path", "text"), ("buffer_count", "int"), ("buffer_size", "int"),
                             ("max_in_cpu", "int"), ("pin_memory", "flag"))))
      for key, kind in keys),
)  # fmt: skip

PRECISION = (
    _("bf16", "table", N_("train in bf16"), closed=True, aliases=("bfloat16",)),
    _("bf16.enabled", "flag", N_("bf16 on or off"), maps=("job.precision", "strategy.precision"), beside="bf16"),
    _("fp16", "table", N_("train in fp16 with loss scaling"), closed=True),
    _("fp16.enabled", "flag", N_("fp16 on or off"), maps=("job.precision", "strategy.precision"), beside="fp16"),
    _("bf16.bf16_master_weights_and_grads", "flag", N_("no fp32 master weights"), maps=("job.optimizer",)),
    _("bf16.bf16_optimizer_states", "flag", N_("optimizer states in bf16"), maps=("job.optimizer",)),
    _("fp16.fp16_master_weights_and_grads", "flag", N_("no fp32 master weights"), unmodelled=True),
    _("bf16.immediate_grad_update", "flag", N_("accumulate gradients at once"), unmodelled=True),
    _("bf16.check_grad_overflow", "flag", N_("skip steps that overflow")),
    _("fp16.auto_cast", "flag", N_("cast inputs")),
    *(_(f"fp16.{key}", kind, N_("loss scaling")) for key, kind in (
        ("loss_scale", "number"), ("initial_scale_power", "int"), ("loss_scale_window", "int"), ("hysteresis", "int"),
        ("consecutive_hysteresis", "flag"), ("min_loss_scale", "int"))),
    _("torch_autocast", "table", N_("fp32 weights, 16-bit multiplications"),
      keys=("enabled", "dtype", "lower_precision_safe_modules"), unmodelled=True),
    _("data_types", "table", N_("types of gradients, parameters and buffers"), unmodelled=True,
      keys=("grad_accum_dtype", "param_dtype", "buffer_dtype", "keep_in_fp32_modules")),
    _("communication_data_type", "text", N_("type of reduced gradients"), unmodelled=True),
    _("seq_parallel_communication_data_type", "text", N_("type of exchanged sequences"), unmodelled=True),
)  # fmt: skip

OPTIMIZER = (
    _("optimizer", "table", N_("the optimizer"), keys=("legacy_fusion",)),
    _("optimizer.type", "text", N_("name of the optimizer"), maps=("job.optimizer",), default="AdamW"),
    _("optimizer.params", "table", N_("its arguments"),
      keys=("momentum", "dampening", "nesterov", "max_coeff", "min_coeff", "bias_correction", "max_grad_norm",
            "adam_w_mode", "torch_adam", "fused", "amsgrad", "freeze_step", "cuda_aware", "muon_lr", "adam_lr",
            "ns_steps", "fp32_optimizer_states", "lr_decay", "initial_accumulator_value", "ns_method", "alpha")),
    _("optimizer.params.lr", "number", N_("learning rate"), beside="learning_rate"),
    _("optimizer.params.betas", "list", N_("decay of the moments"), beside="adam_beta1+adam_beta2"),
    _("optimizer.params.eps", "number", N_("term against division by zero"), beside="adam_epsilon"),
    _("optimizer.params.weight_decay", "number", N_("weight decay"), beside="weight_decay"),
    _("scheduler", "table", N_("the learning-rate schedule")),
    _("scheduler.type", "text", N_("name of the schedule"),
      choices=("LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR")),
    _("scheduler.params", "table", N_("its arguments"),
      keys=("warmup_type", "warmup_min_ratio", "cos_min_ratio", "last_batch_iteration", "lr_range_test_min_lr",
            "lr_range_test_step_size", "lr_range_test_step_rate", "lr_range_test_staircase", "cycle_min_lr",
            "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size", "cycle_second_step_size",
            "cycle_first_stair_count", "cycle_second_stair_count", "decay_step_size", "cycle_momentum",
            "cycle_min_mom", "cycle_max_mom", "decay_mom_rate")),
    _("scheduler.params.warmup_min_lr", "number", N_("learning rate at the start"), beside="0"),
    _("scheduler.params.warmup_max_lr", "number", N_("learning rate after the warm-up"), beside="learning_rate"),
    _("scheduler.params.warmup_num_steps", "int", N_("steps of the warm-up"), beside="warmup_steps"),
    _("scheduler.params.total_num_steps", "int", N_("steps of the run"), beside="num_training_steps (calculated)"),
    _("gradient_clipping", "number", N_("largest gradient norm"), beside="max_grad_norm"),
    _("zero_allow_untested_optimizer", "flag", N_("accept optimizers that ZeRO was not tried with")),
    _("zero_force_ds_cpu_optimizer", "flag", N_("insist on DeepSpeed's own optimizer on the host")),
    _("gradient_allreduce_op", "text", N_("sum or mean of gradients"), choices=("sum", "mean")),
    _("prescale_gradients", "flag", N_("scale gradients before reducing them")),
    _("gradient_predivide_factor", "number", N_("by how much")),
)  # fmt: skip

MESH = (
    _("tensor_parallel", "table", N_("automatic tensor parallelism"), closed=True),
    _("tensor_parallel.autotp_size", "int", N_("tensor-parallel degree"), maps=("strategy.tensor",), low=0, default=0),
    _("tensor_parallel.tp_overlap_comm", "flag", N_("overlap tensor-parallel communication"),
      maps=("strategy.overlap_tensor",)),
    *(_(f"tensor_parallel.{key}", "any", N_("how layers are cut"), aliases=aliases) for key, aliases in (
        ("dtype", ()), ("vocab_parallel_lm_head", ()), ("vocab_parallel_ce_backend", ()),
        ("tensor_parallel", ("tensor_parallel.tp",)), ("injection_policy_tuple", ()), ("partition_config", ()),
        ("preset_model", ()), ("keep_module_on_host", ()),
        ("replace_with_kernel_inject", ("tensor_parallel.kernel_inject",)))),
    _("expert_parallel", "table", N_("automatic expert parallelism"),
      keys=("validate_folding_routing", "async_split_plan", "preset_model", "moe_layer_pattern", "expert_pattern",
            "router_pattern", "use_grouped_mm", "disable_triton_grouped_mm", "route_norm", "route_scale", "score_apply",
            "combine_impl", "row_weighting_impl", "gate_up_impl", "comm_backend", "comm_num_sm", "comm_qp_margin",
            "comm_max_tokens_per_rank", "num_expert_groups", "num_limited_groups", "score_func", "top_k",
            "load_balance_coeff", "routed_scaling_factor", "expert_w1", "expert_w2", "expert_w3", "num_experts_attr",
            "top_k_attr", "has_shared_experts", "shared_experts_pattern", "shared_experts_gate_pattern")),
    _("expert_parallel.enabled", "flag", N_("expert parallelism on or off"), maps=("strategy.expert",)),
    _("expert_parallel.autoep_size", "int", N_("expert-parallel degree"), maps=("strategy.expert",), low=1, default=1),
    _("expert_parallel.expert_tensor_parallel_size", "int", N_("tensor-parallel degree inside experts"),
      maps=("strategy.expert_tensor",), low=1, default=1),
    _("use_data_before_expert_parallelism", "flag", N_("order of the groups"), unmodelled=True),
    _("pipeline.stages", "any", N_("stages of the pipeline"), maps=("strategy.pipeline",)),
    _("pipeline", "table", N_("pipeline engine"), unmodelled=True,
      keys=("partition", "seed_layers", "activation_checkpoint_interval", "pipe_partitioned",
            "grad_partitioned")),
)  # fmt: skip

RECOMPUTE = (
    _("activation_checkpointing", "table",
      N_("how activation checkpointing works where the model asks for it; it turns nothing on")),
    _("activation_checkpointing.cpu_checkpointing", "flag", N_("keep checkpoints on the host"),
      maps=("strategy.offload",)),
    _("activation_checkpointing.partition_activations", "flag", N_("shard checkpoints over tensor-parallel ranks"),
      unmodelled=True),
    _("activation_checkpointing.contiguous_memory_optimization", "flag", N_("one buffer for checkpoints"),
      unmodelled=True),
    _("activation_checkpointing.number_checkpoints", "int", N_("checkpoints of that buffer"), unmodelled=True),
    _("activation_checkpointing.synchronize_checkpoint_boundary", "flag", N_("synchronise at checkpoints"),
      unmodelled=True),
    _("activation_checkpointing.profile", "flag", N_("time the checkpoints")),
    _("compile", "table", N_("compilation (DeepCompile)"), unmodelled=True, closed=True,
      keys=("deepcompile", "autoep_non_moe", "free_activation", "free_activation_threshold", "offload_activation",
            "offload_activation_pin_memory", "offload_opt_states", "double_buffer", "symmetric_memory", "debug_log",
            "offload_parameters", "sync_before_reduce", "sync_after_reduce", "sync_before_allgather",
            "sync_after_allgather", "keep_int_input_tensors", "keep_all_input_tensors", "passes")),
)  # fmt: skip

_MONITOR = N_("where measurements are written")
_REPORT = N_("what is printed, measured or checked")
AROUND = (
    *(_(name, "table", _MONITOR, closed=True, keys=keys) for name, keys in (
        ("tensorboard", ("enabled", "output_path", "job_name")),
        ("wandb", ("enabled", "group", "team", "project")),
        ("csv_monitor", ("enabled", "output_path", "job_name")),
        ("comet", ("enabled", "samples_log_interval", "project", "workspace", "api_key", "experiment_name",
                   "experiment_key", "online", "mode")),
        ("comms_logger", ("enabled", "prof_all", "prof_ops", "verbose", "debug")))),
    *(_(name, kind, _REPORT) for name, kind in (
        ("steps_per_print", "any"), ("wall_clock_breakdown", "flag"), ("memory_breakdown", "flag"),
        ("dump_state", "flag"), ("log_level", "text"), ("vocabulary_size", "int"), ("disable_python_gc", "flag"),
        ("dataloader_drop_last", "flag"), ("disable_allgather", "flag"))),
    _("flops_profiler", "table", _REPORT,
      keys=("enabled", "recompute_fwd_factor", "profile_step", "module_depth", "top_modules", "detailed",
            "output_file")),
    _("timers", "table", _REPORT, keys=("throughput",)),
    _("autotuning", "table", N_("DeepSpeed's own search"),
      keys=("enabled", "fast", "results_dir", "exps_dir", "overwrite", "start_profile_step", "end_profile_step",
            "metric", "metric_path", "tuner_type", "tuner_early_stopping", "tuner_num_trials", "arg_mappings",
            "max_train_batch_size", "min_train_batch_size", "max_train_micro_batch_size_per_gpu",
            "min_train_micro_batch_size_per_gpu", "num_tuning_micro_batch_sizes", "mp_size", "model_info",
            "model_info_path")),
    _("checkpoint", "table", N_("how checkpoints are written"),
      keys=("tag_validation", "load_universal", "use_node_local_storage", "parallel_write", "checkpoint_serialization",
            "writer")),
    _("datastates_ckpt", "any", N_("how checkpoints are written")),
    _("aio", "table", N_("reading and writing NVMe"),
      keys=("block_size", "queue_depth", "intra_op_parallelism", "single_submit", "overlap_events", "use_gds")),
    _("data_efficiency", "table", N_("which samples are trained on"),
      keys=("enabled", "seed", "data_sampling", "data_routing")),
    _("hybrid_engine", "table", N_("generation while training"), closed=True,
      keys=("enabled", "max_out_tokens", "inference_tp_size", "release_inference_cache", "pin_parameters",
            "tp_gather_partition_size", "enable_cuda_graph")),
    _("weight_quantization", "table", N_("quantized inference"),
      keys=("enabled", "quantized_initialization", "post_init_quant")),
    # Gone; 0.19.8 refuses them.
    *(_(name, "any", N_("removed feature"), versions="<0.19.8") for name in (
        "amp", "nebula", "compression_training", "quantize_training", "sparse_gradients", "eigenvalue",
        "sparse_attention", "elasticity", "graph_harvesting", "curriculum_learning", "progressive_layer_drop")),
)  # fmt: skip

TABLE = Table(FORMAT, (*BATCH, *SHARD, *OFFLOAD, *PRECISION, *OPTIMIZER, *MESH, *RECOMPUTE, *AROUND))
