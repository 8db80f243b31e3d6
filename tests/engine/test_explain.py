"""`explain`: every subject answers, with the numbers of the plan, and its parts add up to the estimate."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright import api, glossary
from meshwright.engine.explain import explain, subjects
from meshwright.engine.explain.case import Case
from meshwright.engine.explain.derived import ALIASES, DERIVED
from meshwright.engine.explain.evidence import evidence
from meshwright.engine.explain.formulas import doc_of, spanish, units_of
from meshwright.engine.explain.knobs import KNOBS, neighbours
from meshwright.engine.explain.terms import TERM_FORMULAS, find_terms
from meshwright.errors import UnknownNameError
from meshwright.formulas.registry import REGISTRY
from meshwright.rules.base import RULES
from meshwright.spec.estimate import Estimate
from meshwright.spec.plan import Explanation, Problem
from meshwright.spec.strategy import Strategy

# Model, cluster, strategy: dense, mixture of experts, FSDP with context parallelism, ZeRO-3 with offload, a torus.
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dense": ("llama-3.1-70b", "h100-sxm:64", {"tensor": 8, "pipeline": 4}),
    "interleaved": ("llama-3.1-70b", "h100-sxm:64", {"tensor": 4, "pipeline": 4, "virtual": 2, "recompute": "full"}),
    "moe": ("mixtral-8x7b", "h100-sxm:64", {"tensor": 2, "expert": 8, "recompute": "full", "overlap_expert": False}),
    "latent": ("deepseek-v3", "h100-sxm:512", {"tensor": 2, "pipeline": 8, "expert": 8}),
    "fsdp": ("llama-3.1-8b", "h100-sxm:64", {"framework": "fsdp", "context": 2}),
    "deepspeed": ("llama-3.1-8b", "h100-sxm:16", {"framework": "deepspeed", "offload": "optimizer"}),
    "torus": ("llama-3.1-8b", "v5p:64", {"framework": "jax"}),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return made(request.param)


def made(name: str) -> Case:
    model, cluster, given = CASES[name]
    problem = api.problem(model=model, cluster=cluster, seq_len=4096, global_batch=512, tokens=1e12)
    estimate = api.estimate(problem, api.strategy(problem, **given)[0])
    assert isinstance(estimate, Estimate), estimate
    return Case(problem, estimate)


def ask(subject: str, case: Case) -> Explanation:
    return explain(subject, problem=case.problem, estimate=case.estimate)


def words(explanation: Explanation, language: str = "en") -> str:
    out = [explanation.title.render(language)]
    for section in explanation.sections:
        out += [section.title.render(language), *(t.render(language) for t in section.body)]
    return "\n".join(out)


def rows(explanation: Explanation) -> dict[str, Any]:
    return {name: value for section in explanation.sections for name, value, _ in section.rows}


# --- every term of every estimate -------------------------------------------------------------------------------


def test_every_term_is_explained_in_both_languages(case: Case) -> None:
    for path, term in case.nodes():
        told = ask(path, case)
        assert told.subject == path and told.kind == "term"
        assert told.sections[1].rows[0][1] == float(term.value)
        for language in ("en", "es"):
            assert glossary.meaning(path, language) in words(told, language)


def test_every_term_has_a_label_in_both_languages(case: Case) -> None:
    for path, _ in case.nodes():
        entry = glossary.entry(path)
        assert entry is not None, path
        assert entry.labels["en"] and entry.labels["es"] and entry.meanings["en"] and entry.meanings["es"]


def test_every_formula_a_term_names_is_registered(case: Case) -> None:
    assert [path for path, t in case.nodes() if t.formula and t.formula not in REGISTRY] == []


def test_every_leaf_says_where_it_comes_from(case: Case) -> None:
    for path, term in case.nodes():
        found = evidence(case, path, term)
        named = term.formula in REGISTRY
        assert found.body or found.rows or found.calls or named or term.name == "workspace", path


def test_parts_of_a_total_add_up(case: Case) -> None:
    for path, term in case.nodes():
        if term.combine == "sum" and not any(c.name == term.name for c in term.children):
            assert sum(v for _, v, _ in evidence(case, path, term).rows) == pytest.approx(float(term.value))


def test_seconds_of_operators_add_up_to_their_pass(case: Case) -> None:
    """The walk made again for `explain` must be the one the estimate was made of."""
    compute = [(p, t) for p, t in case.nodes() if p.startswith("step.compute.") and not t.children]
    assert compute
    for path, term in compute:
        assert sum(v for _, v, _ in evidence(case, path, term).rows) == pytest.approx(float(term.value)), path


@pytest.mark.parametrize(("name", "path"), [("dense", "step.tensor_comm"), ("moe", "step.expert_comm")])
def test_collectives_add_up_to_what_is_exposed_and_hidden(name: str, path: str) -> None:
    case = made(name)
    term = case.estimate.time.find(path)
    assert term is not None
    found = evidence(case, path, term)
    hidden = sum(v for n, v, _ in found.rows if n.endswith("regather"))  # the one that runs behind a product
    assert sum(v for _, v, _ in found.rows) - hidden == pytest.approx(float(term.value), rel=1e-6)


def test_the_total_of_a_printed_table_is_its_root() -> None:
    case = made("dense")
    for subject, path in (("total", "device"), ("step.total", "step"), ("memory.total", "device")):
        told = ask(subject, case)
        assert told.subject == path
        assert told.sections[1].rows[0][1] == float({t.name: t for t in case.trees()}[path].value)


def test_a_state_is_explained_by_what_divides_it() -> None:
    assert "ZeRO stage 3" not in words(ask("gradients", made("dense")))  # whole on every rank under ZeRO-1


def test_states_are_parameters_times_bytes_over_ranks(case: Case) -> None:
    for name in ("parameters", "gradients", "main_parameters", "optimizer"):
        term = case.estimate.memory.find(f"states.{name}")
        if term is None:
            continue
        found = evidence(case, f"device.states.{name}", term)
        assert found.calls, name
        for call in found.calls:
            assert call.output == pytest.approx(
                call.inputs["params"] * call.inputs["per_parameter"] / call.inputs["ranks"]
            )
        different = {(c.inputs["params"], c.inputs["ranks"]): c.output for c in found.calls if c.inputs["params"]}
        assert sum(different.values()) == pytest.approx(float(term.value)), name


def test_the_bubble_of_one_f_one_b_is_the_other_stages() -> None:
    told = ask("bubble", made("dense"))
    inputs = rows(told)
    assert inputs["all_stages"] - inputs["slowest"] == pytest.approx(inputs["bubble"])
    assert "pipeline.bubble.1f1b" in told.see_also and "bubble" in told.see_also
    assert any("arXiv 2104.04473" in source for source in told.sources)


# --- naming -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "path"),
    [
        ("tensor_comm", "step.tensor_comm"),
        ("tensor-comm", "step.tensor_comm"),
        ("step.tensor_comm", "step.tensor_comm"),
        ("time.tensor_comm", "step.tensor_comm"),
        ("tensor communication", "step.tensor_comm"),
        ("comunicación tensores", "step.tensor_comm"),
        ("memory.activations", "device.activations"),
        ("activations", "device.activations"),
        ("device.states.optimizer", "device.states.optimizer"),
        ("states.optimizer", "device.states.optimizer"),
        ("compute.backward.mlp", "step.compute.backward.mlp"),
        ("step_seconds", "step"),
        ("host", "host"),
    ],
)
def test_names_of_a_term(subject: str, path: str) -> None:
    assert find_terms(made("dense"), subject)[0][0] == path
    assert ask(subject, made("dense")).subject == path


def test_a_name_in_two_trees_points_at_the_other() -> None:
    told = ask("optimizer", made("dense"))
    assert told.subject == "step.optimizer" and "device.states.optimizer" in told.see_also


def test_a_term_the_plan_does_not_have_is_zero_there() -> None:
    told = ask("context_comm", made("dense"))
    assert "zero in this plan" in words(told)


def test_a_field_of_the_strategy_shows_its_value() -> None:
    assert rows(ask("virtual", made("interleaved")))["virtual"] == 2


@pytest.mark.parametrize("subject", ["tensor_com", "MW-Z999", "comm.all_reduce.rung", "paralelismo de tensor3s"])
def test_unknown_names_are_told_the_nearest(subject: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        explain(subject)
    assert caught.value.fix is not None and caught.value.exit_code == 2
    assert "did you mean" in str(caught.value.fix)


def test_nonsense_is_told_where_to_look() -> None:
    with pytest.raises(UnknownNameError) as caught:
        explain("qqqqqqqqq")
    assert "meshwright explain" in str(caught.value.fix)


def test_a_family_of_formulas_is_ambiguous() -> None:
    with pytest.raises(UnknownNameError) as caught:
        explain("comm.all_reduce")
    assert "comm.all_reduce.binary_tree" in str(caught.value.fix)


def test_everything_listed_is_explained() -> None:
    listed = subjects()
    assert {s.kind for s in listed} == {"concept", "term", "rule", "formula"}
    for subject in listed:
        told = explain(subject.name)
        assert told.sections, subject
        assert words(told, "en") and words(told, "es")


# --- derived numbers --------------------------------------------------------------------------------------------


def test_mfu_follows_from_its_rows(case: Case) -> None:
    told = rows(ask("mfu", case))
    expected = told["model_flops"] / (told["step_seconds"] * told["devices"] * told["peak_flops"])
    assert told["mfu"] == pytest.approx(expected) == case.estimate.mfu


def test_hfu_counts_what_is_recomputed() -> None:
    case = made("interleaved")
    told = rows(ask("hardware_flops", case))
    assert told["recompute"] > 0
    assert told["hardware_flops"] == pytest.approx(told["model_flops"] + told["recompute"])


def test_model_flops_follow_from_the_parts_of_a_token(case: Case) -> None:
    told = rows(ask("model_flops", case))
    assert sum(v for n, v in told.items() if n.endswith("/ token")) == pytest.approx(told["forward"])
    assert 3 * told["forward"] * told["tokens"] == pytest.approx(told["model_flops"])


def test_throughput_days_cost_and_energy_follow_from_their_rows(case: Case) -> None:
    told = rows(ask("tokens_per_second", case))
    assert told["global_batch"] * told["seq_len"] / told["step_seconds"] == pytest.approx(told["tokens_per_second"])
    told = rows(ask("days", case))
    assert told["steps"] * told["step_seconds"] / 86400 == pytest.approx(told["days"])
    told = rows(ask("cost", case))
    if told["price"] is not None:
        assert told["price"] * told["devices"] * told["step_seconds"] / 3600 == pytest.approx(told["dollars_per_step"])
    told = rows(ask("energy", case))
    if told["power"] is not None:
        assert told["power"] * told["devices"] * told["step_seconds"] == pytest.approx(told["joules_per_step"])


def test_the_interval_says_why_it_is_wide(case: Case) -> None:
    told = ask("intervalo", case)
    assert rows(told)["low"] < rows(told)["step_seconds"] < rows(told)["high"]
    assert case.estimate.interval_reason.render("en") in words(told)


def test_the_convention_of_mfu_is_stated() -> None:
    said = words(explain("model_flops"))
    assert "as if unmasked" in said and "recomputation not" in said
    assert "no sparsity" in words(ask("mfu", made("dense")))


@pytest.mark.parametrize("name", [*DERIVED, *ALIASES])
def test_derived_names_and_aliases_are_known(name: str) -> None:
    assert ask(name, made("dense")).subject == ALIASES.get(name, name)
    assert glossary.entry(ALIASES.get(name, name))


# --- what would change it ---------------------------------------------------------------------------------------


def test_neighbours_keep_the_devices_and_change_one_decision() -> None:
    like = Strategy(tensor=4, pipeline=4, data=4, context=2, sharding="zero1")
    found = list(neighbours(like))
    assert {c.field for c in found} >= {"tensor", "pipeline", "context", "micro_batch", "recompute", "sharding"}
    for change in found:
        assert change.strategy.devices == like.devices
        assert getattr(change.strategy, change.field) == change.new != change.old == getattr(like, change.field)


def test_a_change_that_is_named_gives_the_number_that_is_named() -> None:
    """Full recomputation in the sentence equals an estimate with full recomputation."""
    case = made("dense")
    other = api.strategy(case.problem, **{**CASES["dense"][2], "recompute": "full"})[0]
    again = api.estimate(case.problem, other)
    assert isinstance(again, Estimate)
    section = next(s for s in ask("mfu", case).sections if str(s.title) == "What would change it")
    line = next(str(t) for t in section.body if str(t).startswith("recomputation none → full"))
    assert f"{100 * again.mfu:.1f}%" in line


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_knobs_are_words_of_the_glossary(name: str) -> None:
    assert glossary.entry(name), name
    assert [knob for knob in KNOBS[name] if glossary.entry(knob) is None] == []


def test_general_formulas_exist() -> None:
    assert {id for ids in TERM_FORMULAS.values() for id in ids} <= set(REGISTRY)
    assert [name for name in TERM_FORMULAS if glossary.entry(name) is None] == []


# --- rules, concepts, formulas ----------------------------------------------------------------------------------


def test_a_rule_says_whether_the_plan_satisfies_it() -> None:
    case = made("dense")
    assert "satisfies" in words(ask("mw-c101", case))
    bad = Case(case.problem, Estimate(**{f: getattr(case.estimate, f) for f in case.estimate.__slots__}))
    object.__setattr__(bad.estimate, "strategy", Strategy(tensor=3, data=1))
    told = explain("MW-C101", problem=bad.problem, estimate=bad.estimate)
    assert str(told.sections[0].title) == "In your plan" and "satisfies" not in words(told)


def test_every_rule_is_explained_with_and_without_a_plan() -> None:
    case = made("moe")
    for id in RULES:
        assert explain(id).kind == ask(id, case).kind == "rule"


@pytest.mark.parametrize("name", ["zero", "ZeRO", "paralelismo de tensores", "tensor parallelism", "goodput"])
def test_a_concept_by_any_of_its_names(name: str) -> None:
    assert explain(name).kind == "concept"


def test_a_concept_is_filled_with_the_plan() -> None:
    case = made("dense")
    own = next(s for s in ask("tensor-parallel", case).sections if str(s.title) == "In your plan")
    text = own.body[0].render("es")
    assert "8 dispositivos" in text and "450" in text


def test_a_concept_with_a_formula_shows_it() -> None:
    told = explain("bubble")
    assert told.kind == "concept" and "(p - 1)(t_f + t_b)" in words(told)
    assert {"pipeline.bubble.1f1b"} <= set(told.see_also)


def test_a_problem_without_a_strategy_speaks_of_its_best_plan() -> None:
    problem: Problem = api.problem(model="llama-3.1-8b", cluster="h100-sxm:8", seq_len=4096, global_batch=64)
    told = explain("tensor-parallel", problem=problem)
    assert "fastest plan found" in words(told)


def test_a_formula_shows_equation_source_and_example() -> None:
    told = explain("comm.all_reduce.ring")
    said = words(told)
    assert "t = 2(p-1) a + 2(p-1)/p S/B" in said and ">>> " in said and "payload [B]" in said
    assert "Thakur" in told.sources[0]


def test_a_formula_shows_its_largest_call_in_the_plan() -> None:
    case = made("dense")
    told = rows(ask("comm.pipelined", case))
    assert told["value"] == max(float(c.output) for c in case.calls if c.id == "comm.pipelined")
    assert told["value"] == pytest.approx(
        told["latency"] + told["wire"] / told["bandwidth"] + told["sqrt_cost"] * told["wire"] ** 0.5
    )


@pytest.mark.parametrize("id", sorted(REGISTRY))
def test_every_formula_has_summary_source_units_and_spanish(id: str) -> None:
    doc = doc_of(id)
    assert doc.summary.endswith((".", ")")) and REGISTRY[id].source and REGISTRY[id].equation
    assert any(line.startswith(">>>") for line in doc.example)
    assert "return" in units_of(id)
    translated = spanish()[id]
    assert translated["summary"] != doc.summary
    assert bool(doc.notes) == bool(translated.get("notes"))


def test_no_spanish_of_a_formula_that_is_gone() -> None:
    assert set(spanish()) <= set(REGISTRY)
