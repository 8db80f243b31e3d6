"""Concept cards: complete in both languages, true to their sources, and found by the names people use."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from meshwright.catalog import concepts
from meshwright.catalog.concept_numbers import numbers_of
from meshwright.catalog.concepts import CardText, Concept, concept_ids, find, load, show
from meshwright.errors import UnknownNameError
from meshwright.spec import Accelerator, Attention, Block, Cluster, Estimate, Job, Mlp, ModelSpec, Strategy, Term
from meshwright.spec.plan import Problem

REFERENCE = Path(__file__).parents[2] / "../shared/reference"
# The concepts that issue 2 names, and those a plan needs to be read.
PROMISED = [
    "data-parallel",
    "tensor-parallel",
    "pipeline-parallel",
    "sequence-parallel",
    "context-parallel",
    "expert-parallel",
    "zero",
    "fsdp",
    "hsdp",
    "recompute",
    "mixed-precision",
    "fp8",
    "bubble",
    "interleaved-schedule",
    "zero-bubble",
    "all-reduce",
    "reduce-scatter",
    "all-gather",
    "all-to-all",
    "ring",
    "tree",
    "hierarchical",
    "nvls",
    "nic-sharing",
    "mfu",
    "hfu",
    "overlap",
    "exposed-communication",
    "roofline",
    "arithmetic-intensity",
    "gradient-accumulation",
    "global-batch",
    "micro-batch",
    "optimizer-states",
    "activations",
    "offload",
    "flash-attention",
    "logits",
    "moe",
    "mla",
    "mamba",
    "torus",
    "oversubscription",
    "goodput",
    "mtbf",
    "checkpoint-interval",
    "elastic-training",
    "replica-fault-tolerance",
    "scaling",
    "critical-batch",
    "knee",
]
ENGLISH = re.compile(r"\b(the|of|with|and|or|by|for|only|over|inside|from|is|not|through|when|which|prints?|own)\b")


LOANS = re.compile(r"mixture[ -]of[ -]experts|all[ -]to[ -]all", re.IGNORECASE)


def english_words(text: str) -> list[str]:
    """English function words in `text`, loan words of the field apart."""
    return ENGLISH.findall(LOANS.sub("", text))


def every_text(card: Concept) -> list[CardText]:
    texts = [card.title, card.what, card.memory, card.communication, card.equation, card.compute, card.rule]
    return [
        *texts,
        *card.when,
        *card.when_not,
        *card.mistakes,
        *card.spelling.values(),
        *(n.text for n in card.numbers),
    ]


@pytest.fixture(params=concept_ids())
def card(request: pytest.FixtureRequest) -> Concept:
    return load(request.param)


def test_every_promised_concept_has_a_card() -> None:
    assert set(PROMISED) <= set(concept_ids())


def test_a_card_is_complete_in_both_languages(card: Concept) -> None:
    assert card.when and card.when_not and card.mistakes and card.numbers and card.sources and card.see_also
    assert set(card.spelling) == {"pytorch", "deepspeed", "megatron", "jax"}
    for text in every_text(card):
        assert text.template.strip() and text.spanish.strip()


def test_prose_is_translated(card: Concept) -> None:
    prose = [card.what, card.communication, card.rule, *card.when, *card.when_not, *card.mistakes]
    for text in prose:
        assert text.template != text.spanish
        assert not english_words(text.spanish), text.spanish


def test_text_written_once_for_both_languages_has_no_english_words(card: Concept) -> None:
    for text in (card.equation, *card.spelling.values()):
        if text.template == text.spanish:
            assert not english_words(text.template), text.template


def test_placeholders_are_known_and_equal_in_both_languages(card: Concept) -> None:
    for line in card.numbers:
        english = re.findall(r"\{(\w+)\}", line.text.template)
        assert sorted(english) == sorted(re.findall(r"\{(\w+)\}", line.text.spanish))
        assert set(english) <= set(concepts.PLACEHOLDERS)
        assert re.fullmatch(r"(|(\w+) [>=] \d+)", line.condition)
        assert line.condition.split(" ")[0] in {"", *concepts.PLACEHOLDERS}


def test_only_numbers_have_braces(card: Concept) -> None:
    numbers = [n.text for n in card.numbers]
    assert not [t for t in every_text(card) if t not in numbers and "{" in t.template + t.spanish]


def test_see_also_leads_to_other_cards(card: Concept) -> None:
    assert set(card.see_also) <= set(concept_ids()) - {card.id}


def test_a_name_leads_to_one_card() -> None:
    owners: dict[str, set[str]] = {}
    for name in concept_ids():
        for alias in load(name).aliases:
            owners.setdefault(concepts._key(alias), set()).add(name)
    assert not {alias: cards for alias, cards in owners.items() if len(cards) > 1}
    assert not {alias: cards for alias, cards in owners.items() if alias in concept_ids() and cards != {alias}}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mfu", "mfu"),
        ("Tensor Parallelism", "tensor-parallel"),
        ("paralelismo de datos", "data-parallel"),
        ("RECÁLCULO", "recompute"),
        ("recalculo", "recompute"),
        ("gradient checkpointing", "recompute"),
        ("zero3", "zero"),
        ("burbuja", "bubble"),
        ("tensor_parallel", "tensor-parallel"),
        ("vpp", "interleaved-schedule"),
        ("batch crítico", "critical-batch"),
        ("solapamiento", "overlap"),
        ("Dualpip", "zero-bubble"),  # a fragment that only one card has
    ],
)
def test_find_by_the_names_people_use(name: str, expected: str) -> None:
    assert find(name).id == expected


def test_find_by_id_reads_no_other_card() -> None:
    concepts._names.cache_clear()
    load.cache_clear()
    find("ring")
    assert concepts._names.cache_info().misses == 0
    assert load.cache_info().currsize == 1


@pytest.mark.parametrize("name", ["tensor-paralel", "tensro-parallel"])
def test_a_mistyped_name_gets_a_suggestion(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        find(name)
    assert "tensor-parallel" in str(caught.value.fix)


@pytest.mark.parametrize("name", ["", "   ", "¿?", "xyzzy", "../../etc/passwd", "a" * 500])
def test_nonsense_is_an_unknown_name(name: str) -> None:
    with pytest.raises(UnknownNameError):
        find(name)


def test_an_ambiguous_fragment_names_the_candidates() -> None:
    with pytest.raises(UnknownNameError) as caught:
        find("parallel")
    assert "data-parallel" in str(caught.value.fix) and "ambiguous" in str(caught.value)


# ---------------------------------------------------------------------------- facts, from outside our code


def both(concept: str, *fragments: str) -> None:
    """Every fragment stands in the English and in the Spanish card."""
    for language in ("en", "es"):
        whole = " ".join(t.render(language) for t in every_text(load(concept))).replace("\u00a0", " ")
        for fragment in fragments:
            assert fragment in whole, (language, fragment)


def test_zero_figures_are_those_of_the_paper() -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5B parameters over 64 ranks."""
    psi, n = 7.5, 64
    stages = (16 * psi, 4 * psi + 12 * psi / n, 2 * psi + 14 * psi / n, 16 * psi / n)
    assert [round(s, 1) for s in stages] == [120.0, 31.4, 16.6, 1.9]
    both("zero", "120, 31.4, 16.6", "16·P", "4·P + 12·P/N", "2·P + 14·P/N", "16·P/N", "6·P + 12·P/N")


def test_activation_formulas_are_those_of_korthikanti() -> None:
    """Table 2 of the paper: tensor parallel, + sequence parallel, + selective, full."""
    both("tensor-parallel", "s·b·h·(10 + 24/t + 5·a·s/(h·t))", "s·b·h/t·(34 + 5·a·s/h)")
    both("recompute", "34·s·b·h/t", "2·s·b·h", "2.7 %", "1.6 %")
    both("hfu", "51.4", "52.8", "56.0", "57.0")
    assert 10 + 24 == 34  # with t = 1 the first formula is the unsplit layer


def test_selective_overhead_follows_from_the_flop_formula() -> None:
    """Equations of appendix A: extra FLOPs of recomputing attention, s = 2048, v = 51200."""
    for h, layers, percent in ((12288, 96, 2.7), (20480, 105, 1.6)):
        model = 1 + 2048 / (6 * h) + 51200 / (12 * h * layers)
        hardware = 1 + 2048 / (3 * h) + 51200 / (12 * h * layers)
        assert 100 * (hardware / model - 1) == pytest.approx(percent, abs=0.06)


def test_bubble_shares() -> None:
    """(p-1)/(m+p-1) for eight stages (Narayanan et al. 2021)."""
    shares = [round(100 * 7 / (m + 7)) for m in (8, 32, 128)]
    both("bubble", *(f"{share} %" for share in shares), "(p-1)/(m+p-1)", "(p-1)/(v·m)")


def test_ridge_points_follow_from_the_hardware_table() -> None:
    table = REFERENCE / "hardware.csv"
    if not table.is_file():
        pytest.skip("../shared/reference/hardware.csv is not here")
    rows = {row["name"]: row for row in csv.DictReader(table.open(encoding="utf-8"))}
    names = [name for name in rows if re.fullmatch(r"(A100-SXM4-80GB|H100-SXM5-80GB|B200.*|TPU[- ]?v5p)", name)]
    assert len(names) == 4, names
    for name in names:
        ridge = float(rows[name]["bf16_tflops"]) * 1e3 / float(rows[name]["hbm_bw_gbps"])
        both("roofline", f" {ridge:.0f}")


def test_logits_of_the_published_case() -> None:
    """Case A16: Qwen2.5 vocabulary, 4,096 tokens, one fp32 copy."""
    both("logits", f"{4096 * 151936 * 4 / 2**30:.2f} GiB")


def test_hierarchical_example_brackets_the_measurement() -> None:
    """communication.md section 2: 4 nodes of 8 B200, 4 GiB, measured 22.05 ms."""
    size, nodes, per_node = 4 * 2**30, 4, 8
    across = 2 * (nodes - 1) / nodes * (size / per_node) / 50e9 * 1e3
    assert across == pytest.approx(16.1, abs=0.05)
    assert across < 22.05 < across + 10.15
    both("hierarchical", "16.1", "26.2", f"{size / 50e9 * 1e3:.0f}")


def test_intensities_of_h100() -> None:
    for bandwidth, text in ((3.35e12, "295"), (450e9, "2200"), (50e9, "19800")):
        ratio = 989e12 / bandwidth
        assert ratio == pytest.approx(float(text), rel=0.005)
        spanish = load("arithmetic-intensity").rule.render("es").replace("\u00a0", "")
        assert text in spanish and text in load("arithmetic-intensity").rule.render("en").replace(",", "")


def test_goodput_of_llama_3() -> None:
    both("goodput", "419", f"{54 * 24 / 419:.1f} h")


def test_rates_of_published_systems() -> None:
    from meshwright.catalog.failures import failure_source

    for name, text in (("meta-rsc-2", "2.3"), ("meta-rsc-1", "6.5"), ("llama-3-405b", "3.8"), ("bloom-176b", "3.0"),
                       ("b200-63", "2.9"), ("opt-175b", "16"), ("default", "5")):  # fmt: skip
        rate = failure_source(name).rate * 86400 * 1000
        assert float(text) == pytest.approx(rate, rel=0.02)
        both("mtbf", text)


def test_checkpoint_figures() -> None:
    from meshwright.formulas.goodput import daly, efficiency_replicas

    both("checkpoint-interval", f"{405.85e9 * 14 / 1e12:.1f} TB", f"{405.85e9 * 14 / 2e12:.1f} s")
    both("checkpoint-interval", f"{405.85e9 * 14 / 1e9 / 60:.0f} min", f"{daly(40, 7 * 86400) / 3600:.1f} h")
    loss = 1 - efficiency_replicas(128, 3 * 3600, 20 * 60, 30)
    both("replica-fault-tolerance", f"{100 * loss:.1f} %")


def test_offload_of_a_70b_model_needs_more_than_a_terabyte() -> None:
    """Case A28: 18 bytes for 69B parameters on a host of 1,024 GB."""
    both("offload", f"{18 * 69e9 / 1e12:.2f} TB")


# ---------------------------------------------------------------------------- the reader's own numbers


def test_lines_are_filled_and_conditions_hold() -> None:
    values = {
        "tensor": 8,
        "link_gbs": 450.0,
        "domain": 8,
        "tensor_comm_s": 0.7123,
        "step_s": 4.0,
        "heads": 64,
        "kv_heads": 8,
    }
    (line,) = find("tp").plan_lines(values)
    assert "8 devices" in str(line) and "450 GB/s" in str(line) and "0.712 s of a 4.00 s step" in str(line)
    assert "0.712 s de un paso de 4.00 s" in line.render("es")
    (other,) = find("tp").plan_lines(values | {"tensor": 1})
    assert "does not use tensor parallelism" in str(other)


def test_a_line_without_its_values_is_left_out() -> None:
    assert find("mfu").plan_lines({"mfu_pct": 40.0}) == ()
    assert find("mfu").plan_lines({}) == ()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("params", 70.55e9, "70.5B"), ("params", 8.03e9, "8.03B"), ("tokens_per_s", 1234567.0, "1.23M"),
     ("params", 12.0, "12.0"),
     ("devices", 16384, "16384"), ("peak_gib", 71.04, "71.0"), ("bubble_s", 0.0, "0"), ("bubble_s", 0.00123, "0.0012")],
)  # fmt: skip
def test_values_are_printed_in_three_figures(name: str, value: float, text: str) -> None:
    assert show(name, value) == text


def test_explanation_puts_the_plan_after_the_definition() -> None:
    plain = find("bubble").explanation()
    assert [str(s.title) for s in plain.sections][:2] == ["What it is", "When it is right"]
    mine = find("bubble").explanation({"pipeline": 1})
    assert str(mine.sections[1].title) == "In your plan"
    assert mine.kind == "concept" and mine.sources and mine.see_also
    for section in mine.sections:
        for text in section.body:
            assert "{" not in text.render("en") and "{" not in text.render("es")


def small_problem() -> Problem:
    accelerator = Accelerator(
        id="x", name="X", vendor="v", kind="gpu", architecture="hopper", peak_flops={"bf16": 1e15}, matmul_ceiling={},
        compute_units=1, memory_bytes=80e9, memory_usable_bytes=79e9, memory_bandwidth=1e12, link="nvswitch",
        link_bandwidth=450e9, link_pair_bandwidth=450e9, scale_up_domain=8, host_bandwidth=1e10,
    )  # fmt: skip
    cluster = Cluster(id="x:16", accelerator=accelerator, devices=16, node_size=8, domain_size=8, link="nvswitch",
                      link_bandwidth=450e9, nic_bandwidth=50e9, nics_per_node=8, fabric="infiniband")  # fmt: skip
    block = Block(mixer=Attention(heads=32, kv_heads=8, head_dim=128), mlp=Mlp(width=14336))
    model = ModelSpec(name="m", family="llama", hidden=4096, vocab=128256, blocks=(block,), pattern=(0,) * 32)
    return Problem(model=model, cluster=cluster, job=Job(seq_len=8192, global_batch=64))


def small_estimate() -> Estimate:
    gib = 2.0**30
    states = Term("states", 12 * gib, "B", "exact", "", "sum", (
        Term("parameters", 2 * gib, "B"), Term("gradients", 4 * gib, "B"), Term("main_parameters", 2 * gib, "B"),
        Term("optimizer", 4 * gib, "B")))  # fmt: skip
    memory = Term("device", 20 * gib, "B", "modelled", "", "sum", (states, Term("activations", 8 * gib, "B")))
    compute = Term("compute", 6.0, "s", "modelled", "", "sum", (Term("forward", 5.0, "s"), Term("recompute", 1.0, "s")))
    time = Term("step", 10.0, "s", "modelled", "", "sum", (
        compute, Term("tensor_comm", 1.5, "s"), Term("data_comm", 0.5, "s"), Term("bubble", 2.0, "s")))  # fmt: skip
    return Estimate(
        strategy=Strategy(tensor=2, pipeline=2, data=4, recompute="full"), verdict="FITS", capacity_bytes=79 * gib,
        peak_bytes=20 * gib, peak_stage=0, peak_phase="backward", memory=memory, stages=(), host_bytes=0.0,
        host_capacity_bytes=None, time=time, step_seconds=10.0, step_interval=(9.0, 11.0), interval_reason="",
        tokens_per_second=52429.0, tokens_per_second_per_device=3277.0, model_flops=1.0, hardware_flops=1.0, mfu=0.41,
        hfu=0.5, peak_dtype="bf16", micro_batches=16, dollars_per_step=None, joules_per_step=None, days=None,
    )  # fmt: skip


def test_numbers_of_an_estimate() -> None:
    values = numbers_of(small_problem(), small_estimate(), params=8.03e9)
    assert set(values) <= set(concepts.PLACEHOLDERS)
    assert values["parameters_gib"] == 2 and values["optimizer_gib"] == 6  # moments and master weights
    assert values["bubble_pct"] == pytest.approx(20) and values["exposed_pct"] == pytest.approx(20)
    assert values["recompute_s"] == 1 and values["heads"] == 32 and values["kv_heads"] == 8 and values["nodes"] == 2
    assert values["nic_gbs"] == 50


def test_every_card_has_a_line_for_some_plan() -> None:
    """With a plan that uses everything, each card says something about it, in both languages and without gaps."""
    values = numbers_of(small_problem(), small_estimate(), params=8.03e9) | {"context": 2, "expert": 8, "virtual": 2}
    for name in concept_ids():
        lines = load(name).plan_lines(values)
        assert lines, name
        assert not [line for line in lines if "None" in str(line) or "{" in line.render("es")]


def test_words_of_a_plan_are_translated_inside_a_line() -> None:
    (line,) = find("hfu").plan_lines(numbers_of(small_problem(), small_estimate()))
    assert "full" in line.render("en")
