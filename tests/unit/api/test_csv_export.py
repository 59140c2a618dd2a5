"""CSV that a spreadsheet opens without running it, and the numbers that must survive that."""

import csv
import io
from datetime import UTC, datetime

import pytest

from lossbench.service.api.csv_export import csv_cell, csv_chunks, safe_text


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "--1", "-"]
)
def test_text_that_is_a_formula_has_an_apostrophe_before_it(text: str) -> None:
    assert safe_text(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-5", "+0.5", "-1e-3", "flce", "a=b", "", "N8-H4-V2", "0.8.5"])
def test_text_that_is_a_number_or_harmless_stays(text: str) -> None:
    assert safe_text(text) == text


def test_values_of_each_type_are_written_so_that_they_read_back() -> None:
    moment = datetime(2026, 11, 30, 12, tzinfo=UTC)
    values = [-1.5, -3, None, True, moment, "=x", 1e-7]
    written = [csv_cell(value) for value in values]
    assert written == ["-1.5", "-3", "", "true", "2026-11-30T12:00:00Z", "'=x", "1e-07"]


def test_chunks_together_are_one_table_with_a_header() -> None:
    rows = [[["a,b", -1.0]], [["line\nbreak", None], ['"q"', 2.0]]]
    text = b"".join(csv_chunks(["name", "value"], rows)).decode()
    assert list(csv.reader(io.StringIO(text))) == [
        ["name", "value"], ["a,b", "-1.0"], ["line\nbreak", ""], ['"q"', "2.0"],
    ]  # fmt: skip
