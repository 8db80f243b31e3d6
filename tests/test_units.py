"""Quantities: values known from the outside, the bit/byte trap, and what must be refused."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import units
from meshwright.errors import InputError


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_bytes, "80GB", 80_000_000_000),
        (units.parse_bytes, "80 GiB", 85_899_345_920),
        (units.parse_bytes, "80gb", 80_000_000_000),
        (units.parse_bytes, "1.5TiB", 1_649_267_441_664),
        (units.parse_bytes, "40e9", 40e9),
        (units.parse_bandwidth, "400 Gbps", 50e9),
        (units.parse_bandwidth, "400Gb/s", 50e9),
        (units.parse_bandwidth, "400 Gbit/s", 50e9),
        (units.parse_bandwidth, "50 GB/s", 50e9),
        (units.parse_bandwidth, "50GBps", 50e9),
        (units.parse_bandwidth, "3.2Tbps", 400e9),
        (units.parse_bandwidth, "820GiB/s", 820 * 2**30),
        (units.parse_count, "2T", 2e12),
        (units.parse_count, "15T", 15e12),
        (units.parse_count, "1.5e12", 1.5e12),
        (units.parse_count, "70B", 70e9),
        (units.parse_count, "1_000_000", 1e6),
        (units.parse_count, "8k", 8000),
        (units.parse_duration, "21d", 1_814_400),
        (units.parse_duration, "36h", 129_600),
        (units.parse_duration, "1d12h", 129_600),
        (units.parse_duration, "90 min", 5400),
        (units.parse_duration, "20ms", 0.020),
        (units.parse_money, "200k", 200_000),
        (units.parse_money, "$1.5M", 1.5e6),
        (units.parse_money, "200,000", 200_000),
    ],
)
def test_parses_what_people_write(parse, text, value):
    assert parse(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("text", ["-1GB", "nanGB", "inf", "0GB", "1e40GB", "GB", "", "80 parsecs", "1e400", "5 5GB"])
def test_refuses_nonsense_bytes(text):
    with pytest.raises(InputError) as caught:
        units.parse_bytes(text, where="--memory")
    assert caught.value.fix is not None
    assert caught.value.where == "--memory"


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0, True, 1e30, 10**400])
def test_refuses_nonsense_numbers(value):
    with pytest.raises(InputError):
        units.parse_bandwidth(value)


def test_gigabit_is_not_gigabyte():
    with pytest.raises(InputError, match="bits or bytes") as caught:
        units.parse_bandwidth("400gb/s")
    assert str(caught.value.fix) == "write GB/s for bytes or Gbit/s for bits"
    with pytest.raises(InputError, match="bits or bytes"):
        units.parse_bytes("80Gb")
    assert units.parse_bandwidth("400Gbps") * 8 == units.parse_bandwidth("400GB/s")


@pytest.mark.parametrize(("parse", "text"), [(units.parse_bytes, "80"), (units.parse_bandwidth, "400")])
def test_a_small_bare_number_of_bytes_is_a_forgotten_unit(parse, text):
    with pytest.raises(InputError, match="needs a unit"):
        parse(text)


def test_a_duration_needs_a_unit():
    with pytest.raises(InputError, match="needs a unit"):
        units.parse_duration("3600")
    assert units.parse_duration(3600) == 3600


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_bytes(85_899_345_920), "80.0 GiB"),
        (units.format_bytes(84_990_623_744), "79.2 GiB"),
        (units.format_seconds(0.0123), "12.3 ms"),
        (units.format_flops(989e12), "989 TFLOP/s"),
        (units.format_bandwidth(450e9), "450 GB/s"),
        (units.format_count(15e12), "15.0T"),
        (units.format_count(512), "512"),
        (units.format_money(1.234e6), "$1.23M"),
        (units.format_money(9760), "$9,760"),
        (units.format_money(20_000), "$20.0k"),
        (units.format_percent(0.4321), "43.2%"),
    ],
)
def test_prints_three_figures_and_the_unit(text, expected):
    assert text == expected


@given(st.text(max_size=30))
def test_any_text_parses_or_is_refused(text):
    for parse in (units.parse_bytes, units.parse_bandwidth, units.parse_count, units.parse_duration, units.parse_money):
        try:
            value = parse(text)
        except InputError:
            continue
        assert math.isfinite(value) and value > 0


@given(st.floats(min_value=1e-3, max_value=1e12))
def test_printed_money_reads_back_within_rounding(value):
    assert units.parse_money(units.format_money(value)) == pytest.approx(value, rel=6e-3)


@given(st.floats(min_value=1.0, max_value=1e15))
def test_printed_counts_read_back_within_rounding(value):
    assert units.parse_count(units.format_count(value)) == pytest.approx(value, rel=6e-3)


@given(st.floats(min_value=1e-9, max_value=36525.0 * 86400))
def test_printed_seconds_read_back_within_rounding(value):
    assert units.parse_duration(units.format_seconds(value)) == pytest.approx(value, rel=6e-3)


@given(st.floats(min_value=1.0, max_value=1e15))
def test_printed_bytes_read_back_within_rounding(value):
    assert units.parse_bytes(units.format_bytes(value)) == pytest.approx(value, rel=6e-3)


def test_catalogue_units_agree_with_the_parser():
    random.seed(1)
    parsers = {"bytes": units.parse_bytes, "bandwidth": units.parse_bandwidth, "seconds": units.parse_duration}
    for unit, (dimension, factor) in units.UNITS.items():
        if dimension in parsers:
            number = random.randint(1, 900)
            assert parsers[dimension](f"{number} {unit}") == pytest.approx(number * factor, rel=1e-12), unit


@pytest.mark.parametrize(
    ("days", "shown", "plain"),
    [(0.0157, "22.6 min", "0.0157"), (0.5, "12.0 h", "0.50"), (18.44, "18.4 d", "18.4"), (1000.0, "2.74 a", "1,000.0")],
)
def test_lengths_of_a_run_are_never_zero(days: float, shown: str, plain: str) -> None:
    assert (units.show_days(days), units.plain_days(days)) == (shown, plain)
