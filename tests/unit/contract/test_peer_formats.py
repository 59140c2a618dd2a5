"""Tables of other benchmarks: told by their header, read whole, and one clear fault a bad line."""

from pathlib import Path
from typing import Any

import pytest

from lossbench.service.contract.errors import InvalidRequestError
from lossbench.service.contract.peer_formats.rows import Given, PeerFormat, PeerRow
from lossbench.service.contract.peer_formats.tables import detect_format, read_table

TABLES = Path(__file__).with_name("peer_tables")
HISTORY = (TABLES / "liger_history.csv").read_text(encoding="utf-8")
CELLS = "N8192-H4096-V128256-bfloat16"


def text_of(name: str) -> str:
    return (TABLES / f"{name}.csv").read_text(encoding="utf-8")


def rows_of(name: str, **given: Any) -> list[PeerRow]:
    table = read_table(text_of(name), None, Given.model_validate(given))
    assert not table.faults
    return list(table.rows)


def keys(rows: list[PeerRow]) -> list[str | None]:
    return [row.cell.key if row.cell else None for row in rows]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("liger_history", PeerFormat.LIGER),
        ("liger_today", PeerFormat.LIGER),
        ("tritonbench", PeerFormat.TRITONBENCH),
        ("cce", PeerFormat.CCE),
        ("pytorch_lce", PeerFormat.PYTORCH_LCE),
    ],
)
def test_format_of_each_table_is_told_by_its_header(name: str, expected: PeerFormat) -> None:
    assert detect_format(text_of(name)) is expected
    assert read_table(text_of(name), None, Given()).format is expected


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "# notes\n", "latency\n1\n"])
def test_format_of_another_header_is_refused_naming_the_four(text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        detect_format(text)
    assert all(format_.value in caught.value.message for format_ in PeerFormat)
    assert "\n" not in caught.value.message


def test_liger_history_has_the_commit_in_its_identity() -> None:
    rows = rows_of("liger_history")
    assert len(rows) == 14
    assert {row.commit for row in rows} == {row.identity["commit"] for row in rows}
    first = next(row for row in rows if row.cell)
    assert first.cell is not None
    assert first.cell.case.text == "N4096-H4096-V128256-bfloat16"
    assert "y_value_50" not in first.identity
    assert "timestamp" not in first.identity
    assert first.measured_at is not None
    assert first.measured_at.utcoffset() is not None
    others = [row for row in rows if row.kernel == "rms_norm"]
    assert keys(others) == [None, None]


def test_liger_time_and_memory_of_one_cell_share_a_result() -> None:
    rows = [r for r in rows_of("liger_history") if r.cell and r.commit == "b5672a153b"]
    full = [
        r for r in rows if r.cell and r.provider == "liger" and r.cell.pass_ == "forward_backward"
    ]
    time, memory = sorted(full, key=lambda row: row.latency_ms is None)
    assert time.merge_key == memory.merge_key
    assert time.identity != memory.identity
    assert time.latency_ms == float(time.fields["y_value_50"])
    assert memory.latency_ms is None
    assert memory.numbers["memory_mb"] == float(memory.fields["y_value_50"])


def test_liger_table_of_today_is_read_with_x_label_and_given_commit() -> None:
    rows = rows_of("liger_today", commit="abc123")
    assert keys(rows) == [
        f"liger@0.8.5 | {CELLS} | forward_backward",
        f"liger@0.8.5[accum_dtype=float32] | {CELLS} | forward_backward",
        None,
        f"torch-naive | {CELLS} | forward",
    ]
    assert {row.identity["commit"] for row in rows} == {"abc123"}


def test_tritonbench_line_gives_a_row_for_each_implementation_run() -> None:
    rows = rows_of("tritonbench")
    case = "H4096-V128256-float32 | forward"
    assert [(key, row.latency_ms) for key, row in zip(keys(rows), rows, strict=True)] == [
        (f"torch-naive | N4096-{case}", 36.5),
        (f"liger | N4096-{case}", 31.25),
        (f"torch-naive | N8192-{case}", None),
        (f"liger | N8192-{case}", 62.5),
        (f"torch-compile | N8192-{case}", 60.125),
    ]
    assert rows[0].numbers == {"gpu_peak_mem (GB)": 8.4}
    assert rows[2].outcome == "out_of_memory"
    assert "float32, TritonBench's default" in rows[0].assumed


def test_tritonbench_given_vocab_dtype_and_pass_replace_its_defaults() -> None:
    given = {"vocab": 32000, "dtype": "bfloat16", "pass_": "forward_backward"}
    rows = rows_of("tritonbench", **given)
    assert keys(rows)[0] == "torch-naive | N4096-H4096-V32000-bfloat16 | forward_backward"
    assert rows[0].assumed == ()


def test_cce_rows_are_cells_of_the_models_but_for_unknown_ignored_shares() -> None:
    assert keys(rows_of("cce", version="25.1.1")) == [
        "cce@25.1.1 | N8192-H2304-V256000-bfloat16-recipe=trained-softcap=30.0 | forward_backward",
        "torch-compile | N8192-H4096-V128256-bfloat16-recipe=trained | forward",
        None,
    ]


def test_pytorch_table_without_shape_is_kept_and_with_it_is_results() -> None:
    assert keys(rows_of("pytorch_lce")) == [None, None, None]
    rows = rows_of("pytorch_lce", tokens=8192, hidden=4096, vocab=128256)
    native = "acc_policy=compact,accum_dtype=float32,chunking_method=aspect_ratio-2"
    assert keys(rows) == [
        f"torch-native[{native}] | {CELLS} | forward_backward",
        f"liger | {CELLS} | forward_backward",
        f"torch-naive | {CELLS} | forward_backward",
    ]
    assert rows[0].numbers["grad_input_error"] == 0.0021
    assert "grad_input_error" not in rows[2].numbers


GOOD = HISTORY.splitlines()[1]
FAULTS: list[tuple[str, str, str, str]] = [
    (",speed,", ",pace,", "metric_name", "one of speed, memory"),
    (",forward,", ",sideways,", "kernel_operation_mode", "one of forward, backward"),
    (",ms,", ",s,", "metric_unit", "speed is in ms"),
    ("2024-", "24th of ", "timestamp", "a time such as"),
    ("{", "[", "extra_benchmark_config_str", "JSON object"),
    (",fused_linear_cross_entropy,", ",,", "kernel_name", "is empty"),
    (",speed,", ",speed,more,", "", "17 cells; the header has 16"),
]


@pytest.mark.parametrize(("old", "new", "column", "right"), FAULTS)
def test_bad_line_is_one_fault_with_line_column_value_and_what_is_right(
    old: str, new: str, column: str, right: str
) -> None:
    header, *lines = HISTORY.splitlines()
    good = next(line for line in lines if ",forward,speed," in line)
    bad = good.replace(old, new) if column == "timestamp" else good.replace(old, new, 1)
    assert bad != good
    table = read_table("\n".join([header, lines[0], bad, lines[-1]]), None, Given())
    assert len(table.rows) == 2
    (fault,) = table.faults
    assert (fault.line, fault.column) == (3, column)
    assert right in fault.message
    assert fault.text.startswith(f"line 3, {column}" if column else "line 3: ")


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "fast", ""])
def test_time_that_is_no_number_above_zero_is_a_fault(value: str) -> None:
    text = text_of("cce").replace("145.8", value)
    table = read_table(text, None, Given())
    (fault,) = table.faults
    assert (fault.line, fault.column, fault.value) == (2, "runtime_ms", value)
    assert "ms" in fault.message


@pytest.mark.parametrize(
    ("text", "format_", "words"),
    [
        ("", None, "empty"),
        ("method,kind\n", PeerFormat.CCE, "lacks runtime_ms"),
        ("a,b\n", PeerFormat.TRITONBENCH, "implementation-latency"),
        (HISTORY.replace("commit,", "commit,commit,", 1), None, "twice"),
        (HISTORY.replace("commit,", "colour,", 1), None, "'colour'"),
        ('method,kind,runtime_ms,op_mem_mb,test_data\n"a\rb', None, None),
    ],
)
def test_header_that_does_not_fit_is_one_line(
    text: str, format_: PeerFormat | None, words: str | None
) -> None:
    if words is None:
        assert len(read_table(text, format_, Given()).faults) == 1
        return
    with pytest.raises(InvalidRequestError, match=words):
        read_table(text, format_, Given())


def test_lines_of_a_piece_are_counted_as_in_the_file() -> None:
    text = text_of("cce").replace("99.5", "slow")
    (fault,) = read_table(text, None, Given(), first_line=1002).faults
    assert fault.line == 1004
