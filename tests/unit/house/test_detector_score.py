"""The page of the detector's score shows what the docs say, from one run of the benchmark."""

from pathlib import Path

import pytest

from lossbench.web.detector_pages import measured

DOCS = Path(__file__).parents[3] / "docs/reference/detection.md"


@pytest.mark.parametrize("name", ["score", "delay", "time"])
def test_every_line_of_the_page_stands_in_the_docs(name: str) -> None:
    lines = DOCS.read_text("utf-8").splitlines()
    table = measured()[name]
    assert f"| {' | '.join(table['columns'])} |" in lines
    missing = [row for row in table["rows"] if f"| {' | '.join(row)} |" not in lines]
    assert missing == []


def test_docs_say_when_and_of_how_many_series() -> None:
    text = " ".join(DOCS.read_text("utf-8").split())
    found = measured()
    assert f"Measured {found['measured_on']}" in text
    assert f"seed {found['seed']}; {found['clean_series']:,} clean series" in text
    assert f"{found['stepped_series']} with each step" in text
