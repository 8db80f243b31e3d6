"""Predicted against measured tokens/s of published runs.

Run: `python benchmarks/measured_runs.py ../shared/validation/measured_runs.csv`.

Prints median and mean absolute error, bias and 90 % band by group; `--bands` rewrites the bands that intervals use
(src/meshwright/catalog/data/accuracy). Rows that the record of architectures or strategies cannot express are counted
with the reason.
"""

from __future__ import annotations

import argparse
import collections
import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.catalog.hardware import cluster
from meshwright.engine.evaluate import estimate_legal
from meshwright.engine.uncertainty import resemblance
from meshwright.errors import MeshwrightError
from meshwright.spec import Attention, Block, Job, Mlp, ModelSpec, Moe, MultiLatentAttention, Strategy
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import Problem

Row = dict[str, str]
BANDS = Path(__file__).parents[1] / "src/meshwright/catalog/data/accuracy/step-time.toml"


class Skipped(Exception):
    """Why a row cannot be predicted."""


@dataclass(frozen=True)
class Compared:
    """One row: what was measured, what was predicted."""

    row: Row
    estimate: Estimate
    measured: float  # tokens/s per device

    @property
    def error(self) -> float:
        """Predicted over measured tokens/s, minus one."""
        return self.estimate.tokens_per_second_per_device / self.measured - 1


def number(row: Row, key: str, default: int | None = None) -> int:
    """An integer column."""
    if not row[key]:
        if default is None:
            raise Skipped(f"{key} not stated")
        return default
    return int(float(row[key]))


def model_of(row: Row) -> ModelSpec:
    """The architecture a row states."""
    other = row["other_arch"]
    if re.search(r"ybrid|encoder-decoder|per-layer|global 512|chunked", other):
        raise Skipped("architecture: " + other[:40])
    hidden, layers, heads = number(row, "hidden"), number(row, "n_layers"), number(row, "n_heads")
    dim = re.search(r"head_dim (\d+)", other)
    head_dim = int(dim.group(1)) if dim else hidden // heads
    gated = number(row, "gated_mlp", 1) == 1
    mixer: Attention | MultiLatentAttention
    if other.startswith("MLA"):
        mixer = MultiLatentAttention(heads=heads, q_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128)
    else:
        window = re.search(r"sliding window (\d+)", other)
        mixer = Attention(
            heads=heads,
            kv_heads=number(row, "n_kv_heads", heads),
            head_dim=head_dim,
            window=int(window.group(1)) if window else None,
        )
    experts = number(row, "n_experts", 0)
    dense = Block(mixer=mixer, mlp=Mlp(width=number(row, "ffn_hidden", 4 * hidden), gated=gated))
    if not experts:
        blocks, pattern = (dense,), (0,) * layers
    else:
        width = number(row, "moe_ffn_hidden", number(row, "ffn_hidden", 4 * hidden))
        shared = number(row, "shared_experts", 0) * width
        moe = Moe(experts=experts, top_k=number(row, "top_k"), width=width, gated=gated, shared_width=shared)
        first = number(row, "dense_layers", 0)
        blocks = (dense, Block(mixer=mixer, mlp=moe))
        pattern = (0,) * first + (1,) * (layers - first)
    return ModelSpec(
        name=row["model"],
        family="row",
        hidden=hidden,
        vocab=number(row, "vocab", 50304),
        blocks=blocks,
        pattern=pattern,
        tied_embeddings="tied embeddings" in other and "untied" not in other,
    )


SOFTWARE = {
    "megatron": "megatron-core", "nanotron": "megatron-core", "internevo": "megatron-2023",
    "colossalai": "megatron-core",
    "megatron-deepspeed": "megatron-deepspeed", "fsdp": "fsdp-eager", "torchtitan": "fsdp2", "deepspeed": "deepspeed",
    "maxtext": "maxtext", "jax": "maxtext", "other": "megatron-core",
}  # fmt: skip
FRAMEWORK = {
    "fsdp": "fsdp", "torchtitan": "fsdp", "deepspeed": "deepspeed", "maxtext": "jax", "jax": "jax",
}  # fmt: skip
PRECISION = {
    "fp8-tensorwise": "fp8", "fp8-current": "fp8", "fp8-rowwise": "fp8", "fp8-blockwise": "fp8", "": "bf16",
}  # fmt: skip


def software_of(row: Row) -> str:
    """The software profile of a row: Megatron by the year of its run."""
    year = number(row, "year", 2024)
    if row["framework"] == "megatron" and year <= 2023:
        return "megatron-2022" if year <= 2022 else "megatron-2023"
    return SOFTWARE[row["framework"]]


def strategy_of(row: Row) -> Strategy:
    """The mesh and settings a row states."""
    tensor, pipeline, context = (number(row, k, 1) for k in ("tp", "pp", "cp"))
    devices = number(row, "n_gpus")
    data = devices // (tensor * pipeline * context)
    if data * tensor * pipeline * context != devices:
        raise Skipped("mesh does not multiply to the device count")
    expert = number(row, "ep", 1)
    virtual = number(row, "vpp", 1)
    framework = FRAMEWORK.get(row["framework"], "megatron")
    sharding = {"hsdp": "zero3", "": "zero3" if framework in ("fsdp", "jax") else "none"}.get(
        row["sharding"], row["sharding"]
    )
    recompute = row["recompute"].split(":")[0]
    precision = PRECISION.get(row["precision"], row["precision"])
    if precision not in ("bf16", "fp16", "fp8", "mxfp8", "nvfp4"):
        raise Skipped("precision " + precision)
    return Strategy(
        framework=framework,
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        virtual=virtual,
        context=context,
        expert=expert,
        expert_tensor=number(row, "etp", 1) if expert > 1 else tensor,
        sharding=sharding,
        sequence_parallel=tensor > 1 and row["seq_parallel"] != "0",
        micro_batch=number(row, "micro_batch"),
        schedule="interleaved" if virtual > 1 else "1f1b",
        recompute=recompute if recompute in ("none", "selective", "full") else "none",
        precision=precision,
        overlap_tensor="overlap ON" in row["notes"],
        overlap_expert="a2a_overlap" in row["notes"],
    )


def predict(row: Row) -> Compared:
    """Predict one row."""
    if row["tier"] in ("C", "D", "L", "M"):
        raise Skipped("tier " + row["tier"])
    if row["recompute"] in ("partial", "offload"):
        raise Skipped("recompute " + row["recompute"])
    strategy, model = strategy_of(row), model_of(row)
    batch = number(row, "global_batch")
    if batch % (strategy.data * strategy.micro_batch):
        raise Skipped("batch does not split")
    measured = float(row["tokens_per_s_per_gpu"] or 0)
    seq = number(row, "seq_len")
    if not measured:
        raise Skipped("no throughput")
    fabric = {"nic_bandwidth": float(rate) / 8 * 1e9} if (rate := row["inter_gbps_per_accelerator"]) else {}
    where = cluster(f"{row['accelerator']}:{number(row, 'n_gpus')}", **fabric)
    job = Job(
        seq_len=seq,
        global_batch=batch,
        precision=strategy.precision,
        software=software_of(row),
        expert_imbalance=1.0 if "balanced" in row["notes"] else None,
    )
    problem = Problem(model=model, cluster=where, job=job)
    return Compared(row, estimate_legal(problem, strategy), measured)


def compare(rows: Iterable[Row]) -> tuple[list[Compared], collections.Counter[str]]:
    """Every row that can be predicted, and why the others cannot."""
    done, skipped = [], collections.Counter[str]()
    for row in rows:
        try:
            done.append(predict(row))
        except Skipped as reason:
            skipped[str(reason)] += 1
        except MeshwrightError as error:
            skipped[str(error)] += 1
    return done, skipped


def summary(done: list[Compared], key: Any) -> None:
    """One line per group."""
    groups: dict[str, list[float]] = collections.defaultdict(list)
    for c in done:
        groups[key(c)].append(c.error)
    for name, values in sorted(groups.items(), key=lambda kv: -len(kv[1])):
        e = np.array(values)
        low, high = np.quantile(e, [0.05, 0.95])
        print(
            f"{name:44} {len(e):4}  median|e| {np.median(abs(e)):6.1%}  mean|e| {abs(e).mean():6.1%}"
            f"  bias {np.median(e):+6.1%}  band {low:+.0%} {high:+.0%}"
        )


def write_bands(done: list[Compared]) -> None:
    """Bands of measured over predicted step time by group of like runs, and over all rows."""
    ratios: dict[str, list[float]] = collections.defaultdict(list)
    for c in done:
        architecture = cluster(f"{c.row['accelerator']}:8").accelerator.architecture
        s = c.estimate.strategy
        moe = bool(number(c.row, "n_experts", 0))
        for key in (*resemblance(s.framework, architecture, moe, s.precision), "any"):
            ratios[key].append(1 + c.error)
    lines = ['id = "step-time"', 'title = "Measured over predicted step time: 5th and 95th percentile, number of runs"']
    for key, values in sorted(ratios.items()):
        if len(values) >= 8:
            low, high = np.quantile(values, [0.05, 0.95])
            lines += ["", f'[constants."{key}"]', f"value = [{low:.3f}, {high:.3f}, {len(values)}]", 'unit = "1"']
            lines += [
                'basis = "measured"',
                'source = "published runs, benchmarks/measured_runs.py"',
            ]
    BANDS.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("csv", type=Path)
    parser.add_argument("--bands", action="store_true")
    parser.add_argument("--rows", default="", help="print rows whose id starts with this")
    options = parser.parse_args()
    with options.csv.open(newline="", encoding="utf-8") as file:
        done, skipped = compare(csv.DictReader(file))
    for c in done:
        if options.rows and c.row["id"].startswith(options.rows):
            parts = {t.name: f"{t.value / c.estimate.step_seconds:.0%}" for t in c.estimate.time.children}
            print(
                c.row["id"], c.row["model"], c.row["accelerator"], c.estimate.strategy.short, f"{c.error:+.1%}", parts
            )
    summary(done, lambda c: "all")
    summary(done, lambda c: c.row["framework"] + " " + c.row["accelerator"])
    summary(done, lambda c: c.row["framework"] + " " + c.row["accelerator"] + " " + c.estimate.strategy.precision)
    summary(done, lambda c: c.row["source"][:44])
    print("not predicted:", sum(skipped.values()), dict(skipped.most_common(20)))
    if options.bands:
        write_bands(done)


if __name__ == "__main__":
    main()
