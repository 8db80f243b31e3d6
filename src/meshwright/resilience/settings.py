"""How each framework is told to save as planned: names of options and functions as its own release has them."""

from __future__ import annotations

import math

from meshwright.spec.resilience import FrameworkSetting, Policy

SECONDS_PER_MINUTE = 60.0


def framework_settings(framework: str, policy: Policy, steps: int, quick_steps: int | None, *, kept: int,
                       timeout: float) -> tuple[FrameworkSetting, ...]:  # fmt: skip
    """Lines that realise the policy in `framework`; `timeout` seconds for its process groups."""
    lines = _SETTINGS[framework](policy, steps, quick_steps, kept, max(10, math.ceil(timeout / SECONDS_PER_MINUTE)))
    if policy.mode == "replicas":
        lines += _torchft(policy)
    return tuple(FrameworkSetting(framework=name, text=text) for name, text in lines)


Lines = list[tuple[str, str]]


def _behind(policy: Policy) -> bool:
    return policy.mode != "blocking"


def _megatron(policy: Policy, steps: int, quick: int | None, kept: int, minutes: int) -> Lines:
    lines = [("megatron", f"--save-interval {steps} --ckpt-format torch_dist --distributed-timeout-minutes {minutes}")]
    if _behind(policy):
        lines.append(("megatron", "--async-save --use-persistent-ckpt-worker --ckpt-assume-constant-structure"))
    lines.append(("megatron", "--dist-ckpt-optim-fully-reshardable"))
    if quick is not None:
        local = f"--non-persistent-save-interval {quick} --non-persistent-ckpt-type local"
        copies = " --replication --replication-factor 2" if policy.mode == "peer" else ""
        lines.append(("megatron", local + copies))
    return lines


def _fsdp(policy: Policy, steps: int, quick: int | None, kept: int, minutes: int) -> Lines:
    mode = "async_with_pinned_mem" if _behind(policy) else "disabled"
    lines = [
        ("torchtitan", f"--checkpoint.interval {steps} --checkpoint.async_mode {mode}"),
        ("torchtitan", f"--checkpoint.keep_latest_k {kept} --comm.train_timeout_seconds {minutes * 60}"),
        ("torch", "torch.distributed.checkpoint.async_save(state, checkpoint_id=path, process_group=gloo)"
         if _behind(policy) else "torch.distributed.checkpoint.save(state, checkpoint_id=path)"),
    ]  # fmt: skip
    if quick is not None:
        lines.append(("nvidia-resiliency-ext", f"LocalCheckpointManager: every {quick} steps"
                      + (", CliqueReplicationStrategy" if policy.mode == "peer" else "")))  # fmt: skip
    return lines


def _deepspeed(policy: Policy, steps: int, quick: int | None, kept: int, minutes: int) -> Lines:
    lines = [
        ("deepspeed", f"model_engine.save_checkpoint(path)  # if step % {steps} == 0, by all ranks"),
        ("deepspeed", f"deepspeed.init_distributed(timeout=timedelta(minutes={minutes}))"),
    ]
    if _behind(policy):
        lines.append(("deepspeed", f'"nebula": {{"enabled": true, "num_of_version_in_retention": {kept}}}'))
    return lines


def _jax(policy: Policy, steps: int, quick: int | None, kept: int, minutes: int) -> Lines:
    lines = [("maxtext", f"checkpoint_period={steps} async_checkpointing={str(_behind(policy)).lower()}")]
    if quick is not None:
        backup = max(1, round(policy.period / SECONDS_PER_MINUTE))
        lines.append(("maxtext", f"enable_multi_tier_checkpointing=true local_checkpoint_period={quick}"
                      f" multi_tier_checkpointing_backup_interval_minutes={backup}"))  # fmt: skip
    lines.append(("orbax", f"CheckpointManagerOptions(save_interval_steps={steps}, max_to_keep={kept})"))
    return lines


def _torchft(policy: Policy) -> Lines:
    return [
        ("torchft", f"torchft_lighthouse --min_replicas {max(1, policy.replicas // 2)} --join_timeout_ms 60000"),
        ("torchft", "Manager(use_async_quorum=True)  # one replica group per process group, HSDP across groups"),
    ]


_SETTINGS = {"megatron": _megatron, "fsdp": _fsdp, "deepspeed": _deepspeed, "jax": _jax}
