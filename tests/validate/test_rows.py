"""Reading a file of measured runs: tolerant of form, one clear message where nothing can be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validate_runs import DATA, ROWS, changed, table

from meshwright.errors import InputError
from meshwright.validate.rows import COLUMNS, read_runs


def test_the_columns_are_those_of_the_published_table() -> None:
    assert tuple(DATA.read_text("utf-8").splitlines()[0].split(",")) == COLUMNS


def test_cells_become_numbers_and_empty_ones_nothing() -> None:
    runs = {run.id: run for run in read_runs(DATA.read_bytes(), where="rows.csv")}
    assert set(runs) == set(ROWS)
    run = runs["kor22-003"]
    assert (run.n_layers, run.hidden, run.n_gpus, run.tp, run.pp, run.peak_mem_gb) == (96, 12288, 64, 8, 8, None)
    assert run.tokens_per_s_per_gpu == float(ROWS["kor22-003"]["tokens_per_s_per_gpu"])


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_any_spreadsheet(delimiter: str, encoding: str) -> None:
    content = table(changed(), delimiter=delimiter).decode().replace("\n", "\r\n").encode(encoding)
    assert [run.id for run in read_runs(content, where="x")] == ["kor22-003"]


def test_heads_in_other_order_case_and_number() -> None:
    heads = "N_GPUS, Global_Batch,accelerator,seq_len,n_heads,hidden,n_layers,my_column"
    text = f"{heads}\n8,16,h100-sxm,4096,32,4096,32,x\n\n"
    (run,) = read_runs(text.encode(), where="x")
    assert (run.n_gpus, run.global_batch, run.hidden, run.id) == (8, 16, 4096, "line-2")


@pytest.mark.parametrize("cell", ["abc", "nan", "inf", "1e400", "-3", "2.5", "0x10"])
def test_a_cell_that_is_no_count_is_remembered(cell: str) -> None:
    (run,) = read_runs(table(changed(tp=cell)), where="x")
    assert run.tp is None
    assert run.malformed == (("tp", cell),)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"a,b,c\n1,2,3\n", "lacks columns"),
        (table(), "no rows"),
        (b"\xff\x00\xff", "UTF-8"),
        (b'{"rows": []}', "lacks columns"),
    ],
)
def test_what_is_no_table_says_so(content: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read_runs(content, where="runs.csv")
    assert caught.value.where == "runs.csv"
    assert str(caught.value.fix)


@given(st.one_of(st.binary(max_size=400), st.binary(max_size=200).map(lambda tail: table(changed()) + tail)))
def test_any_bytes_are_rows_or_one_message(content: bytes) -> None:
    try:
        assert read_runs(content, where="x")
    except InputError as error:
        assert str(error.fix)


def test_step_time_where_the_rate_is_not_printed() -> None:
    (run,) = read_runs(table(changed(tokens_per_s_per_gpu="", step_time_s="18.13", global_batch="64")), where="x")
    assert run.measured_tokens_per_second == pytest.approx(2048 * 64 / 18.13 / 64)


def test_times_of_memory_only_rows_are_not_used() -> None:
    (run,) = read_runs(table(changed(tier="M", step_time_s="18.13")), where="x")
    assert run.measured_tokens_per_second is None


def test_a_number_beyond_anything_measured_is_a_slip_of_the_pen() -> None:
    """1e308 GB would overflow, 1e300 tokens/s would count as measured."""
    (run,) = read_runs(table(changed(peak_mem_gb="1e308", tokens_per_s_per_gpu="1e300")), where="x")
    assert run.peak_mem_gb is None and run.tokens_per_s_per_gpu is None
    assert {name for name, _ in run.malformed} == {"peak_mem_gb", "tokens_per_s_per_gpu"}
