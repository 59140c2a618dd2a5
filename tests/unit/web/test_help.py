"""Help: one sentence for each metric and each flag, and a button that opens it."""

import re
from pathlib import Path

import pytest

from lossbench.service.contract.words import Flag
from lossbench.web.help import FLAGS, METRICS, why

TEMPLATES = Path(__file__).parents[3] / "web" / "templates"
HEADINGS = ("time", "workspace", "grade", "verdict", "ratio", "floor", "flags", "outcome", "error")
"""First words of headings that are metrics."""


def test_every_flag_has_its_words() -> None:
    assert set(FLAGS) == {flag.value for flag in Flag}


def test_every_metric_is_one_name_and_whole_sentences() -> None:
    for name, sentence in METRICS.values():
        assert name[0].isupper()
        assert sentence.endswith(".")
        assert len(sentence) < 260


def test_button_opens_the_sentence_of_its_metric() -> None:
    html = why("workspace")
    assert 'popovertarget="why-workspace"' in html
    assert "What is workspace?" in html
    with pytest.raises(KeyError):
        why("nothing")


def test_every_heading_of_a_metric_has_its_help() -> None:
    bare = []
    for path in TEMPLATES.glob("*.html"):
        for heading in re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", path.read_text()):
            first = (
                heading.partition("<")[0].partition("{")[0].strip().partition(" ")[0].rstrip(",")
            )
            if first in HEADINGS and "why(" not in heading:
                bare.append(f"{path.name}: {heading}")
    assert bare == []
