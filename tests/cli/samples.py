"""Records made by hand, for tests of the shell that must not depend on what the engine answers."""

from __future__ import annotations

from meshwright.messages import N_, Text
from meshwright.spec import (
    Accelerator,
    Attention,
    Block,
    Cluster,
    Estimate,
    Finding,
    Job,
    Mlp,
    ModelSpec,
    StageMemory,
    Strategy,
    Term,
    total,
)
from meshwright.spec.plan import (
    FunnelStep,
    GroupPlacement,
    NearMiss,
    Plan,
    Problem,
    Ranked,
    ScalePoint,
    Scaling,
    Sizing,
)

GIB = 2.0**30


def model() -> ModelSpec:
    attention = Attention(heads=32, kv_heads=8, head_dim=128)
    block = Block(mixer=attention, mlp=Mlp(width=14336))
    return ModelSpec(name="sample-8b", family="llama", hidden=4096, vocab=128256, blocks=(block,), pattern=(0,) * 32)


def cluster(devices: int = 64) -> Cluster:
    accelerator = Accelerator(
        id="h100-sxm", name="H100 SXM", vendor="NVIDIA", kind="gpu", architecture="hopper",
        peak_flops={"bf16": 989e12}, matmul_ceiling={"bf16": 0.8}, compute_units=132, memory_bytes=80e9,
        memory_usable_bytes=79.6 * GIB, memory_bandwidth=3.35e12, link="nvswitch", link_bandwidth=450e9,
        link_pair_bandwidth=450e9, scale_up_domain=8, host_bandwidth=50e9,
    )  # fmt: skip
    return Cluster(
        id=f"h100-sxm:{devices}", accelerator=accelerator, devices=devices, node_size=8, domain_size=8, link="nvswitch",
        link_bandwidth=450e9, nic_bandwidth=50e9, nics_per_node=8, fabric="infiniband", price_per_device_hour=2.5,
    )  # fmt: skip


def problem(devices: int = 64) -> Problem:
    job = Job(seq_len=8192, global_batch=128, tokens=1e12)
    return Problem(model=model(), cluster=cluster(devices), job=job, assumptions=(Text(N_("no model is given")),))


def memory(scale: float = 1.0) -> Term:
    states = total(
        "optimizer",
        "B",
        (Term("master", 4 * GIB, "B", "exact", "memory.master"), Term("moments", 8 * GIB, "B", "exact")),
    )
    parameters = Term("parameters", 8 * GIB, "B", "exact", "memory.parameters")
    activations = Term("activations", 30 * GIB * scale, "B", "modelled", "memory.activations")
    return total("device", "B", (parameters, states, activations, Term("buffers", 2 * GIB, "B", "assumed")))


def time() -> Term:
    terms = (Term("compute", 4.0, "s", "fitted"), Term("tensor_exposed", 1.0, "s"), Term("bubble", 0.5, "s", "exact"))
    return total("step", "s", terms)


def estimate(verdict: str = "FITS", **fields: object) -> Estimate:
    scale = 2.0 if verdict == "OVER" else 1.0
    stages = tuple(
        StageMemory(stage=i, phase="backward", device=memory(scale if i == 0 else 0.5), host=Term("host", 0.0, "B"))
        for i in range(4)
    )
    values: dict[str, object] = dict(  # noqa: C408
        strategy=Strategy(data=2, tensor=8, pipeline=4, micro_batch=1), verdict=verdict, capacity_bytes=79.6 * GIB,
        peak_bytes=memory(scale).value, peak_stage=0, peak_phase="backward", memory=memory(scale), stages=stages,
        host_bytes=0.0, host_capacity_bytes=None, time=time(), step_seconds=5.5, step_interval=(5.0, 6.2),
        interval_reason=Text(""), peak_dtype="bf16",
        tokens_per_second=190650.0, tokens_per_second_per_device=2979.0, model_flops=6e16,
        hardware_flops=7e16, mfu=0.41, hfu=0.45, micro_batches=64, dollars_per_step=0.24, joules_per_step=None,
        days=60.7, bound_by="compute",
        findings=(Finding(code="MW-X001", severity="advice", message=Text(N_("no cluster is given")), where="tensor",
                          fix=Text(N_("use {option}"), option="--tp")),),
    ) | fields  # fmt: skip
    return Estimate(**values)  # type: ignore[arg-type]


def plan(*, fits: bool = True) -> Plan:
    ranked = tuple(Ranked(rank=i + 1, estimate=estimate(step_seconds=5.5 + i), reason=None) for i in range(3))
    return Plan(
        problem=problem(), goal="fastest", candidates=1200, legal=300, fitting=42 if fits else 0, seconds=0.3,
        ranked=ranked if fits else (), pareto=ranked[:1] if fits else (),
        funnel=(FunnelStep(code="MW-R001", title=Text(N_("no model is given")), rejected=900, remaining=300),
                FunnelStep(code="memory", title=Text(N_("no cluster is given")), rejected=258, remaining=42)),
        near_misses=(NearMiss(strategy=Strategy(tensor=4, pipeline=4, data=4), over_bytes=GIB, step_seconds=5.1,
                              fix=Text(N_("use {option}"), option="--recompute selective")),),
        placement=(GroupPlacement(group="tensor", ranks=8, ranks_per_domain=8, domains=1, link="nvswitch",
                                  bandwidth=450e9),
                   GroupPlacement(group="data", ranks=2, ranks_per_domain=1, domains=2, link="infiniband",
                                  bandwidth=50e9)),
        reasons=(Text(N_("bound by {what}"), what="compute"),), next_steps=(Text(N_("use {option}"), option="--top"),),
    )  # fmt: skip


def scaling() -> Scaling:
    points = []
    for i, devices in enumerate((8, 64, 512, 4096)):
        rate = 2979.0 * devices * 0.7**i
        points.append(
            ScalePoint(
                devices=devices, global_batch=128, estimate=None if i == 3 else estimate(tokens_per_second=rate),
                efficiency=0.7**i, exposed_communication=0.1 * (i + 1), bubble=0.05, marginal=0.5**i,
                dollars_per_token=1e-9, reason=Text(N_("nothing fits")) if i == 3 else None,
            )
        )  # fmt: skip
    return Scaling(
        problem=problem(), mode="fixed-batch", points=tuple(points), knee=64, binds="communication",
        summary=Text(N_("bound by {what}"), what="communication"),
    )  # fmt: skip


def sizing() -> Sizing:
    curve = scaling()
    return Sizing(
        problem=problem(), goal="fewest", devices=64, estimate=estimate(), days=60.0, dollars=1e5, points=curve.points,
        summary=Text(N_("use {option}"), option="64"),
    )  # fmt: skip
