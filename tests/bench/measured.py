"""Measurements made by hand, for tests of files and of drawing; an H100 that is a little slower than predicted."""

from __future__ import annotations

from typing import Any

from meshwright.bench.records import Device, Measurements, Reading, Sample, Skipped, TrainingStep
from meshwright.messages import N_, Text


def sample(**fields: Any) -> Sample:
    values: dict[str, Any] = dict(  # noqa: C408
        kind="gemm", phase="forward", kernel="torch.mm", shape={"m": 8192, "n": 8192, "k": 8192}, dtype="bf16",
        seconds=1.75e-3, seconds_min=1.7e-3, n=20, calls=1, work=2.0 * 8192**3, unit="FLOP",
    )  # fmt: skip
    return Sample(**(values | fields))


def attention(**fields: Any) -> Sample:
    shape = {"batch": 1, "seq": 4096, "heads": 32, "kv_heads": 8, "qk_dim": 128, "v_dim": 128}
    values: dict[str, Any] = dict(  # noqa: C408
        kind="attention", kernel="sdpa flash", shape=shape, seconds=4e-4, seconds_min=4e-4, work=1.37e11
    )
    return sample(**(values | fields))


def all_reduce(**fields: Any) -> Sample:
    values: dict[str, Any] = dict(  # noqa: C408
        kind="all_reduce",
        phase="",
        kernel="nccl",
        shape={"ranks": 8, "local": 8, "payload": 2**30},
        dtype="fp32",
        seconds=4.5e-3,
        seconds_min=4.4e-3,
        work=1.75 * 2**30,
        unit="B",
    )
    return sample(**(values | fields))


def copy(**fields: Any) -> Sample:
    values: dict[str, Any] = dict(  # noqa: C408
        kind="copy",
        phase="",
        kernel="Tensor.copy_",
        shape={"bytes": 2**30},
        dtype="uint8",
        seconds=8e-4,
        seconds_min=7.9e-4,
        work=2.0 * 2**30,
        unit="B",
    )
    return sample(**(values | fields))


def step(**fields: Any) -> TrainingStep:
    shape = {"hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "ffn": 14336, "layers": 4, "vocab": 32768,
             "seq": 4096, "micro_batch": 1}  # fmt: skip
    values: dict[str, Any] = dict(  # noqa: C408
        shape=shape, precision="bf16", optimizer="adamw", parameters=1_140_887_552, seconds=0.11, seconds_min=0.109,
        n=10, forward_seconds=0.03, backward_seconds=0.06, optimizer_seconds=0.02, work=2.6e13, peak_bytes=2.6e10,
        peak_basis="allocated", state_bytes=1.37e10, saved_bytes=6e9,
    )  # fmt: skip
    return TrainingStep(**(values | fields))


def measurements(**fields: Any) -> Measurements:
    device = Device(
        name="NVIDIA H100 80GB HBM3", backend="cuda", count=8, memory_bytes=85e9, free_bytes=84e9, compute_units=132,
        cache_bytes=50 * 2.0**20, capability="9.0", accelerator="h100-sxm",
    )  # fmt: skip
    left_out = Skipped(
        kind="gemm", phase="forward", kernel="torch.mm", shape={"m": 16384, "n": 16384, "k": 16384}, dtype="fp32",
        reason=Text(N_("no time was left for it")),
    )  # fmt: skip
    values: dict[str, Any] = dict(  # noqa: C408
        created="2026-11-30T12:00:00Z", budget_seconds=120.0, took_seconds=118.2, device=device,
        software={"torch": "2.13.0", "cuda": "13.0"},
        readings=(Reading(moment="warm", clock_hz=1.755e9, watts=690.0, celsius=61.0),),
        samples=(sample(), attention(), attention(phase="backward", seconds=1.1e-3, seconds_min=1e-3, work=3.43e11),
                 all_reduce(), copy()),
        steps=(step(),), skipped=(left_out,),
    )  # fmt: skip
    return Measurements(**(values | fields))
