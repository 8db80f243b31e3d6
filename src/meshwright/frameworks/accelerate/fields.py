"""Settings of an Accelerate YAML file, as Accelerate 1.15 reads it."""

from __future__ import annotations

from typing import Any

from meshwright.frameworks.fields import Field, Table
from meshwright.messages import N_, Text

FORMAT = "accelerate"
VERSION = "1.15.0"
FSDP, DEEPSPEED, MESH, MEGATRON = "fsdp_config", "deepspeed_config", "parallelism_config", "megatron_lm_config"
DP = f"{MESH}.parallelism_config_dp"


def _(name: str, kind: Any, meaning: str, *maps: str, **more: Any) -> Field:
    return Field(name=name, kind=kind, meaning=Text(meaning), maps=maps, **more)


TOP = (
    _("distributed_type", "text", N_("what distributes the training"), "strategy.framework",
      choices=("NO", "MULTI_CPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU",
               "MULTI_HPU", "MULTI_NEURON", "DEEPSPEED", "FSDP", "XLA", "MEGATRON_LM", "TP")),
    _("num_processes", "int", N_("devices of the run"), "cluster.devices", low=-1),
    _("num_machines", "int", N_("nodes of the run"), "cluster.nodes", low=1, default=1),
    _("mixed_precision", "text", N_("number format"), "job.precision", "strategy.precision",
      choices=("no", "fp16", "bf16", "fp8")),
    _("fp16", "flag", N_("fp16 on or off"), "job.precision", "strategy.precision", instead="mixed_precision"),
    _("fp8_config", "any", N_("how 8-bit matrices are scaled"), unmodelled=True),
    _("dynamo_config", "any", N_("compilation"), unmodelled=True),
    _("dynamo_backend", "any", N_("compilation"), unmodelled=True),
    _("downcast_bf16", "any", N_("number format on TPUs"), unmodelled=True),
    *(_(name, "any", N_("how the processes are started")) for name in (
        "compute_environment", "machine_rank", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend",
        "same_network", "main_training_function", "enable_cpu_affinity", "mpirun_config", "use_cpu", "debug",
        "tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env")),
)  # fmt: skip

FSDP_FIELDS = (
    _(FSDP, "table", N_("settings of FSDP")),
    _(f"{FSDP}.fsdp_version", "int", N_("version of FSDP"), "strategy.sharding", choices=(1, 2), default=1),
    _(f"{FSDP}.fsdp_sharding_strategy", "any", N_("what FSDP 1 shards"), "strategy.sharding", default="FULL_SHARD",
      needs="fsdp1"),
    _(f"{FSDP}.fsdp_reshard_after_forward", "any", N_("whether parameters are sharded again after the forward pass"),
      "strategy.sharding"),
    _(f"{FSDP}.fsdp_offload_params", "flag", N_("parameters, gradients and optimizer on the host"), "strategy.offload"),
    _(f"{FSDP}.fsdp_activation_checkpointing", "flag", N_("full recomputation"), "strategy.recompute"),
    _(f"{FSDP}.fsdp_activation_checkpointing_offload", "flag", N_("layer inputs on the host"), "strategy.offload",
      needs="fsdp2"),
    _(f"{FSDP}.fsdp_auto_wrap_policy", "text", N_("which modules become units of FSDP"), unmodelled=True,
      choices=("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"), default="NO_WRAP"),
    _(f"{FSDP}.fsdp_transformer_layer_cls_to_wrap", "text", N_("class of a transformer layer"), unmodelled=True),
    _(f"{FSDP}.fsdp_min_num_params", "int", N_("least parameters of a unit"), unmodelled=True),
    _(f"{FSDP}.fsdp_backward_prefetch", "text", N_("when the next unit is gathered"), unmodelled=True, needs="fsdp1"),
    _(f"{FSDP}.fsdp_backward_prefetch_policy", "text", N_("when the next unit is gathered"), unmodelled=True,
      needs="fsdp1"),
    _(f"{FSDP}.fsdp_forward_prefetch", "flag", N_("gather the next unit while computing"), unmodelled=True,
      needs="fsdp1"),
    _(f"{FSDP}.fsdp_use_orig_params", "flag", N_("keep the parameters as they are"), needs="fsdp1"),
    _(f"{FSDP}.fsdp_sync_module_states", "flag", N_("broadcast the weights of the first rank"), default=True,
      needs="fsdp1"),
    _(f"{FSDP}.fsdp_cpu_ram_efficient_loading", "flag", N_("only the first rank loads the weights"), unmodelled=True),
    _(f"{FSDP}.fsdp_state_dict_type", "text", N_("how checkpoints are written")),
    _(f"{FSDP}.fsdp_ignored_modules", "any", N_("modules that are not sharded"), unmodelled=True),
)  # fmt: skip

DEEPSPEED_FIELDS = (
    _(DEEPSPEED, "table", N_("settings of DeepSpeed")),
    _(f"{DEEPSPEED}.zero_stage", "int", N_("ZeRO stage"), "strategy.sharding", choices=(0, 1, 2, 3), default=2),
    _(f"{DEEPSPEED}.offload_optimizer_device", "text", N_("device of the optimizer states"), "strategy.offload",
      choices=("none", "cpu", "nvme"), default="none"),
    _(f"{DEEPSPEED}.offload_param_device", "text", N_("device of the parameters"), "strategy.offload",
      choices=("none", "cpu", "nvme"), default="none"),
    _(f"{DEEPSPEED}.gradient_accumulation_steps", "any", N_("forward passes per optimizer step"), "job.global_batch"),
    _(f"{DEEPSPEED}.deepspeed_config_file", "text", N_("a DeepSpeed file, which rules instead of these settings")),
    *(_(f"{DEEPSPEED}.{name}", "any", N_("how offloaded values are staged"), unmodelled=True) for name in (
        "offload_optimizer_nvme_path", "offload_param_nvme_path", "zero3_init_flag")),
    *(_(f"{DEEPSPEED}.{name}", "any", N_("how the processes are started")) for name in (
        "deepspeed_hostfile", "deepspeed_exclusion_filter", "deepspeed_inclusion_filter",
        "deepspeed_multinode_launcher")),
    _(f"{DEEPSPEED}.gradient_clipping", "any", N_("largest gradient norm")),
    _(f"{DEEPSPEED}.zero3_save_16bit_model", "any", N_("gather whole weights when saving")),
    _(f"{DEEPSPEED}.deepspeed_moe_layer_cls_names", "text", N_("modules that ZeRO-3 gathers whole (experts)")),
)  # fmt: skip

MESH_FIELDS = (
    _(MESH, "table", N_("degrees of the mesh")),
    _(f"{DP}_replicate_size", "int", N_("copies of the sharded model"), "strategy.data", "strategy.shard", low=1,
      default=1),
    _(f"{DP}_shard_size", "int", N_("devices over which the model is sharded"), "strategy.data", "strategy.shard",
      low=1, default=1),
    _(f"{MESH}.parallelism_config_tp_size", "int", N_("tensor-parallel degree"), "strategy.tensor", low=1, default=1),
    _(f"{MESH}.parallelism_config_cp_size", "int", N_("devices that share one sequence"), "strategy.context", low=1,
      default=1),
    _(f"{MESH}.parallelism_config_sp_size", "int", N_("devices that share one sequence (Ulysses)"), "strategy.context",
      low=1, default=1),
    *(_(f"{MESH}.parallelism_config_{name}", "any", N_("how sequences are exchanged"), unmodelled=True) for name in (
        "cp_backend", "cp_comm_strategy", "sp_backend", "sp_seq_length", "sp_seq_length_is_variable",
        "sp_attn_implementation")),
)  # fmt: skip

MEGATRON_FIELDS = (
    _(MEGATRON, "table", N_("settings of Megatron-LM"), keys=(
        "megatron_lm_gradient_clipping", "megatron_lm_no_load_optim", "megatron_lm_eod_mask_loss",
        "megatron_lm_no_save_optim", "megatron_lm_calculate_per_token_loss", "megatron_lm_use_custom_fsdp",
        "megatron_lm_use_precision_aware_optimizer", "megatron_lm_overlap_cpu_optimizer_d2h_h2d",
        "megatron_lm_decoder_last_pipeline_num_layers", "megatron_lm_attention_backend",
        "megatron_lm_attention_dropout",
        "megatron_lm_hidden_dropout", "megatron_lm_attention_softmax_in_fp32",
        "megatron_lm_use_rotary_position_embeddings",
        "megatron_lm_recompute_method", "megatron_lm_recompute_num_layers")),
    _(f"{MEGATRON}.megatron_lm_tp_degree", "int", N_("tensor-parallel degree"), "strategy.tensor", low=1),
    _(f"{MEGATRON}.megatron_lm_pp_degree", "int", N_("stages of the pipeline"), "strategy.pipeline", low=1),
    _(f"{MEGATRON}.megatron_lm_num_micro_batches", "int", N_("forward passes per optimizer step"), "job.global_batch",
      low=1),
    _(f"{MEGATRON}.megatron_lm_sequence_parallelism", "flag",
      N_("shard activations between tensor-parallel regions"), "strategy.sequence_parallel"),
    _(f"{MEGATRON}.megatron_lm_recompute_activations", "flag", N_("selective recomputation"), "strategy.recompute"),
    _(f"{MEGATRON}.megatron_lm_recompute_granularity", "text", N_("what is recomputed"), "strategy.recompute"),
    _(f"{MEGATRON}.megatron_lm_use_distributed_optimizer", "flag",
      N_("shard the optimizer over data-parallel ranks"), "strategy.sharding"),
    _(f"{MEGATRON}.megatron_lm_optimizer_cpu_offload", "flag", N_("optimizer states on the host"), "strategy.offload"),
    _(f"{MEGATRON}.megatron_lm_expert_model_parallel_size", "int", N_("expert-parallel degree"), "strategy.expert",
      low=1),
    _(f"{MEGATRON}.megatron_lm_expert_tensor_parallel_size", "int", N_("tensor-parallel degree inside experts"),
      "strategy.expert_tensor", low=1),
    _(f"{MEGATRON}.megatron_lm_context_parallel_size", "int", N_("devices that share one sequence"),
      "strategy.context", low=1),
)  # fmt: skip

TABLE = Table(FORMAT, (*TOP, *FSDP_FIELDS, *DEEPSPEED_FIELDS, *MESH_FIELDS, *MEGATRON_FIELDS), strict_from="0.0")
