"""Numbers that follow from a step: utilisation, throughput, cost, energy, duration, and the interval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from meshwright.engine.explain import formulas
from meshwright.engine.explain.case import Case
from meshwright.engine.explain.knobs import depends_on, what_changes_it
from meshwright.engine.explain.words import Row, label, meaning, plain, shown
from meshwright.engine.flops import model_flops_per_token
from meshwright.engine.kernels import dense_peak
from meshwright.engine.memory import stated_error
from meshwright.formulas.registry import REGISTRY
from meshwright.messages import N_, Text
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import Explanation, Section


@dataclass(frozen=True, slots=True)
class Derived:
    """How a number follows from others: equation, stated convention, and the values put in."""

    name: str
    unit: str
    equation: str
    convention: tuple[str, ...]  # templates of messages
    rows: Callable[[Case], tuple[Row, ...]]
    formulas: tuple[str, ...] = ()
    read: Callable[[Estimate], float | None] | None = None
    extra: Callable[[Case], tuple[Text, ...]] = lambda _: ()


def _utilisation(case: Case) -> tuple[Row, ...]:
    e, cluster = case.estimate, case.problem.cluster
    return (
        ("step_seconds", e.step_seconds, "s"),
        ("devices", cluster.devices, ""),
        ("peak_dtype", e.peak_dtype, ""),
        ("peak_flops", dense_peak(cluster.accelerator, e.peak_dtype), "FLOP/s"),
    )


def _mfu(case: Case) -> tuple[Row, ...]:
    return (("model_flops", case.estimate.model_flops, "FLOP"), *_utilisation(case), ("mfu", case.estimate.mfu, "1"))


def _hfu(case: Case) -> tuple[Row, ...]:
    e = case.estimate
    return (("hardware_flops", e.hardware_flops, "FLOP"), *_utilisation(case), ("hfu", e.hfu, "1"))


def _model_flops(case: Case) -> tuple[Row, ...]:
    job = case.problem.job
    per_token = model_flops_per_token(case.problem.model, job.seq_len)
    parts = sorted(per_token.parts, key=lambda p: -p.forward)
    rows: list[Row] = [(f"{part.name} / token", part.forward, "FLOP") for part in parts]
    rows += [("forward", per_token.forward, "FLOP"), ("tokens", job.tokens_per_step, "token")]
    return (*rows, ("model_flops", case.estimate.model_flops, "FLOP"))


def _hardware_flops(case: Case) -> tuple[Row, ...]:
    e = case.estimate
    again = e.hardware_flops - e.model_flops
    return (
        ("model_flops", e.model_flops, "FLOP"),
        ("recompute", again, "FLOP"),
        ("hardware_flops", e.hardware_flops, "FLOP"),
    )


def _throughput(case: Case) -> tuple[Row, ...]:
    e, job = case.estimate, case.problem.job
    return (
        ("global_batch", job.global_batch, ""),
        ("seq_len", job.seq_len, "token"),
        ("step_seconds", e.step_seconds, "s"),
        ("devices", case.problem.cluster.devices, ""),
        ("tokens_per_second", e.tokens_per_second, "token/s"),
        ("tokens_per_second_per_device", e.tokens_per_second_per_device, "token/s"),
    )


def _cost(case: Case) -> tuple[Row, ...]:
    e, cluster, job = case.estimate, case.problem.cluster, case.problem.job
    rows: list[Row] = [
        ("price", cluster.price_per_device_hour, "$"),
        ("devices", cluster.devices, ""),
        ("step_seconds", e.step_seconds, "s"),
        ("dollars_per_step", e.dollars_per_step, "$"),
    ]
    if e.dollars_per_step is not None:
        rows.append(("dollars_per_token", e.dollars_per_step / job.tokens_per_step, "$/token"))
        if job.tokens is not None:
            rows.append(("dollars", e.dollars_per_step * job.tokens / job.tokens_per_step, "$"))
    return tuple(rows)


def _missing_price(case: Case) -> tuple[Text, ...]:
    if case.estimate.dollars_per_step is None:
        return (Text(N_("no price is known for this cluster; state one with --price")),)
    return ()


def _energy(case: Case) -> tuple[Row, ...]:
    e, cluster = case.estimate, case.problem.cluster
    return (
        ("power", cluster.accelerator.power_watts, "W"),
        ("devices", cluster.devices, ""),
        ("step_seconds", e.step_seconds, "s"),
        ("joules_per_step", e.joules_per_step, "J"),
    )


def _days(case: Case) -> tuple[Row, ...]:
    e, job = case.estimate, case.problem.job
    steps = None if job.tokens is None else job.tokens / job.tokens_per_step
    return (
        ("tokens", job.tokens, "token"),
        ("steps", steps, ""),
        ("step_seconds", e.step_seconds, "s"),
        ("days", e.days, "d"),
    )


def _missing_tokens(case: Case) -> tuple[Text, ...]:
    if case.problem.job.tokens is None:
        return (Text(N_("the length of the run is not stated; give it with --tokens")),)
    return ()


def _interval(case: Case) -> tuple[Row, ...]:
    e = case.estimate
    low, high = e.step_interval
    return (("step_seconds", e.step_seconds, "s"), ("low", low, "s"), ("high", high, "s"))


def _peak(case: Case) -> tuple[Row, ...]:
    e = case.estimate
    return (
        ("peak_bytes", e.peak_bytes, "B"),
        ("error", stated_error(e.strategy), "1"),
        ("capacity_bytes", e.capacity_bytes, "B"),
        ("spare", e.capacity_bytes - e.peak_bytes, "B"),
    )


def _phases(case: Case) -> tuple[Text, ...]:
    e = case.estimate
    stage = next((s for s in e.stages if s.stage == e.peak_stage), None)
    lines = [
        Text(
            N_("{verdict}: stage {stage}, phase {phase}"),
            verdict=label(e.verdict),
            stage=e.peak_stage,
            phase=label(e.peak_phase),
        )
    ]
    if stage is not None:
        lines += [Text(N_("{name}: {value}"), name=label(n), value=shown(v, "B")) for n, v in stage.phases.items()]
    return tuple(lines)


def _micro_batches(case: Case) -> tuple[Row, ...]:
    job, s = case.problem.job, case.strategy
    return (
        ("global_batch", job.global_batch, ""), ("data", int(s.data), ""), ("micro_batch", int(s.micro_batch), ""),
        ("micro_batches", case.micro_batches, ""),
    )  # fmt: skip


def _largest(case: Case) -> tuple[Row, ...]:
    ordered = sorted(case.estimate.time.children, key=lambda t: -float(t.value))
    return tuple((t.name, float(t.value), "s") for t in ordered)


_MODEL_CONVENTION = N_(
    "model FLOPs: 3 × forward; attention counted as if unmasked, the head counted, the embedding look-up not, "
    "recomputation not"
)
_PEAK_CONVENTION = N_("peak: the dense rate of the data sheet (no sparsity) in the type of the matrix products")

DERIVED: dict[str, Derived] = {
    d.name: d
    for d in (
        Derived(
            "mfu", "1", "MFU = model FLOPs / (step · devices · peak)", (_MODEL_CONVENTION, _PEAK_CONVENTION), _mfu,
            ("flops.training", "flops.attention_core"), lambda e: e.mfu,
        ),
        Derived(
            "hfu", "1", "HFU = hardware FLOPs / (step · devices · peak)",
            (N_("hardware FLOPs: model FLOPs and what is recomputed"), _PEAK_CONVENTION), _hfu,
            ("flops.training",), lambda e: e.hfu,
        ),
        Derived(
            "model_flops", "FLOP", "model FLOPs = 3 · forward FLOPs per token · tokens", (_MODEL_CONVENTION,),
            _model_flops, ("flops.training", "flops.linear", "flops.attention_core"),
        ),
        Derived(
            "hardware_flops", "FLOP", "hardware FLOPs = model FLOPs + recomputed forward FLOPs",
            (N_("the recomputed share is the recompute time over the forward time"),), _hardware_flops,
            ("flops.training",),
        ),
        Derived(
            "tokens_per_second", "token/s", "tokens/s = global batch · sequence / step",
            (N_("tokens of the whole cluster, padding and masked tokens included"),), _throughput, (),
            lambda e: e.tokens_per_second,
        ),
        Derived(
            "tokens_per_second_per_device", "token/s", "tokens/s/device = global batch · sequence / (step · devices)",
            (N_("every device counts, whatever its role"),), _throughput, (),
            lambda e: e.tokens_per_second_per_device,
        ),
        Derived(
            "days", "d", "days = tokens / (global batch · sequence) · step / 86 400",
            (N_("uninterrupted: no failures, no checkpoints, no evaluation"),), _days, (), lambda e: e.days,
            _missing_tokens,
        ),
        Derived(
            "dollars_per_step", "$", "cost = price · devices · step / 3 600",
            (N_("devices only: no storage, network or idle time"),), _cost, (), lambda e: e.dollars_per_step,
            _missing_price,
        ),
        Derived(
            "joules_per_step", "J", "energy = power · devices · step",
            (N_("power: the data sheet's limit of the device, without host and cooling"),), _energy, (),
            lambda e: e.joules_per_step,
        ),
        Derived(
            "step_interval", "s", "interval = step · (low, high)",
            (N_("bands of measured over predicted step times of published runs; 90 % of them lie inside"),), _interval,
            (), None, lambda case: (case.estimate.interval_reason,),
        ),
        Derived(
            "peak_bytes", "B", "FITS: peak · (1 + error) ≤ capacity; TIGHT: peak ≤ capacity; OVER: peak > capacity",
            (N_("the peak is the largest phase of the fullest stage, allocator reserve and context included"),), _peak,
            (), lambda e: e.peak_bytes, _phases,
        ),
        Derived(
            "micro_batches", "", "m = global batch / (data · micro-batch)",
            (N_("per replica and step"),), _micro_batches, (), lambda e: float(e.micro_batches),
        ),
        Derived(
            "bound_by", "", "argmax over the terms of a step", (N_("what binds is the largest term of the step"),),
            _largest,
        ),
    )
}  # fmt: skip

ALIASES = {
    "cost": "dollars_per_step", "dollars": "dollars_per_step", "dollars_per_token": "dollars_per_step",
    "energy": "joules_per_step", "interval": "step_interval", "throughput": "tokens_per_second",
    "tokens_per_s": "tokens_per_second", "tokens/s": "tokens_per_second", "duration": "days", "peak": "peak_bytes",
    "verdict": "peak_bytes", "capacity": "peak_bytes", "capacity_bytes": "peak_bytes", "peak_dtype": "mfu",
    "spare": "peak_bytes", "fits": "peak_bytes", "tight": "peak_bytes", "over": "peak_bytes",
}  # fmt: skip


def derived_explanation(name: str, case: Case | None) -> Explanation:
    """A derived number: meaning, equation, convention, the values put in, and what would change it."""
    d = DERIVED[name]
    convention = tuple(Text(template) for template in d.convention)
    sections = [
        Section(title=Text(N_("What it is")), body=meaning(name)),
        Section(title=Text(N_("Equation")), body=(plain(d.equation),)),
        Section(title=Text(N_("Convention")), body=convention),
    ]
    if case is not None:
        origin = (case.origin,) if case.origin else ()
        sections.insert(2, Section(title=Text(N_("In your plan")), body=(*origin, *d.extra(case)), rows=d.rows(case)))
        now = d.read(case.estimate) if d.read else None
        if d.read is not None and now is not None:
            sections.append(what_changes_it(case, name, d.unit, now, d.read))
    else:
        sections.append(Section(title=Text(N_("What would change it")), body=depends_on(name)))
    sections += [formulas.section(id) for id in d.formulas]
    return Explanation(
        subject=name,
        kind="term",
        title=label(name),
        sections=tuple(s for s in sections if s.body or s.rows),
        sources=tuple(dict.fromkeys(REGISTRY[id].source for id in d.formulas)),
        see_also=d.formulas,
    )
