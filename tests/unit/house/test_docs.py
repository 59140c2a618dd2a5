"""Docs say what the code does: generated pages are current, links lead somewhere, names exist."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from lossbench.service.api import errors as web_errors
from lossbench.service.contract import errors as domain_errors
from lossbench.service.contract.case import CaseOptions
from lossbench.service.contract.errors import LossbenchError
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.words import Flag, Grade, Outcome
from lossbench.service.settings import Settings

SECTIONS = ("Context", "Decision", "Consequences", "Enforced by")
MOST_DECISION_LINES = 60
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMED_PATH = re.compile(r"`((?:kernels|service|worker|web|tests|suites|docs|docker)/[\w./-]+)`")


def anchors(text: str) -> set[str]:
    """Fragments that GitHub gives to the headings of a Markdown text."""
    titles = re.findall(r"^#+ (.+)$", _without_code(text), re.MULTILINE)
    kept = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in kept}


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Relative links of a page that lead to no file or no heading."""
    for target in LINK.findall(_without_code(text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, fragment = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.is_file():
            yield f"{page.name}: {target} is no file"
        elif fragment and file.suffix == ".md":
            there = text if file == page else file.read_text(encoding="utf-8")
            if fragment not in anchors(there):
                yield f"{page.name}: {target} is no heading"


def missing_paths(root: Path, page: str, text: str) -> list[str]:
    """Paths of the repository that a page names and that are not there."""
    return [f"{page}: {name}" for name in NAMED_PATH.findall(text) if not (root / name).exists()]


def decision_faults(name: str, text: str) -> list[str]:
    """What a decision lacks."""
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    faults = [] if tuple(titles) == SECTIONS else [f"{name}: sections are {titles}"]
    bodies = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    faults += [f"{name}: an empty section" for body in bodies if not body.strip()]
    if len(text.splitlines()) > MOST_DECISION_LINES:
        faults.append(f"{name}: more than {MOST_DECISION_LINES} lines")
    return faults


def targets_of(makefile: str) -> set[str]:
    """Names of a Makefile's targets."""
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


def unknown_targets(text: str, targets: set[str]) -> list[str]:
    """`make x` in code of a page where the Makefile has no x."""
    code = [*re.findall(r"`([^`\n]+)`", text), *re.findall(r"^    (.+)$", text, re.MULTILINE)]
    named = [found[1] for line in code if (found := re.match(r"make ([a-z-]+)", line))]
    return [name for name in named if name not in targets]


def undescribed(names: Sequence[str], text: str) -> list[str]:
    """Names without a mention in backticks."""
    return [name for name in names if f"`{name}`" not in text]


def error_classes() -> list[type[LossbenchError]]:
    """Every error, the web's included."""
    found, new = set(), [LossbenchError]
    while new:
        error = new.pop()
        found.add(error)
        new += error.__subclasses__()
    modules = (domain_errors.__name__, web_errors.__name__)
    return sorted((e for e in found if e.__module__ in modules), key=lambda e: e.__name__)


def errors_without_heading(errors: Sequence[type[LossbenchError]], text: str) -> list[str]:
    """Errors whose name, as class or as `type`, is in no heading."""
    lines = [line for line in text.splitlines() if line.startswith("#")]
    words = set(re.findall(r"[\w-]+", " ".join(lines)))
    return [
        error.__name__
        for error in errors
        if not {error.__name__, web_errors.problem_name(error)} & words
    ]


@pytest.fixture(scope="module")
def pages(root: Path) -> dict[Path, str]:
    """Every Markdown page with its text."""
    files = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "tests").rglob("*.md")]
    return {path: path.read_text(encoding="utf-8") for path in sorted(files)}


@pytest.mark.parametrize("name", ["settings.md", "cli.md"])
def test_generated_page_is_current(generate: ModuleType, root: Path, name: str) -> None:
    text = (root / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert generate.PAGES[name]() == text, "run `make docs`"


def test_every_setting_has_a_row_with_a_description(root: Path) -> None:
    text = (root / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    names = [f"LOSSBENCH_{name.upper()}" for name in Settings.model_fields]
    assert not undescribed(names, text)
    assert all(field.description for field in Settings.model_fields.values())


def test_every_job_field_and_option_is_described(root: Path) -> None:
    text = (root / "docs" / "reference" / "job-file.md").read_text(encoding="utf-8")
    assert not undescribed([*JobRequest.model_fields, *CaseOptions.model_fields], text)


def test_glossary_has_every_outcome_grade_and_flag(root: Path) -> None:
    text = (root / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert not undescribed([word.value for kind in (Outcome, Grade, Flag) for word in kind], text)


def test_every_error_has_a_heading(root: Path) -> None:
    page = root / "docs" / "reference" / "errors.md"
    assert page.exists(), "docs/reference/errors.md is missing"
    assert not errors_without_heading(error_classes(), page.read_text(encoding="utf-8"))


def test_error_tree_in_the_docstring_is_whole() -> None:
    for module in (domain_errors, web_errors):
        names = {error.__name__ for error in error_classes() if error.__module__ == module.__name__}
        assert names <= set(re.findall(r"\w+", module.__doc__ or ""))


def test_links_of_all_pages_lead_somewhere(pages: dict[Path, str]) -> None:
    assert not [fault for page, text in pages.items() for fault in broken_links(page, text)]


def test_paths_that_pages_name_exist(root: Path, pages: dict[Path, str]) -> None:
    assert not [m for page, text in pages.items() for m in missing_paths(root, page.name, text)]


def test_decisions_have_their_sections(root: Path, pages: dict[Path, str]) -> None:
    decisions = {p: t for p, t in pages.items() if re.match(r"\d{4}-", p.name)}
    assert len(decisions) >= 7
    assert not [fault for p, text in decisions.items() for fault in decision_faults(p.name, text)]
    numbers = sorted(int(path.name[:4]) for path in decisions)
    assert all(after == before + 1 for before, after in pairwise(numbers))
    index = (root / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert not [path.name for path in decisions if f"({path.name})" not in index]


def test_make_targets_that_pages_name_exist(root: Path, pages: dict[Path, str]) -> None:
    targets = targets_of((root / "Makefile").read_text(encoding="utf-8"))
    assert {"demo", "test"} <= targets
    faults = {page.name: unknown_targets(text, targets) for page, text in pages.items()}
    assert not any(faults.values()), faults


def test_changelog_has_an_unreleased_section(root: Path) -> None:
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## \[?(Unreleased|\d+\.\d+\.\d+)", text, re.MULTILINE)


def test_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    text = "# One two\n[x](b.md) [y](#one-two) [z](#three) [w](https://example.com/x)"
    page.write_text(text, encoding="utf-8")
    faults = ["a.md: b.md is no file", "a.md: #three is no heading"]
    assert list(broken_links(page, text)) == faults


def test_missing_path_is_found(root: Path) -> None:
    assert missing_paths(root, "a.md", "`service/nowhere.py` `Makefile`") == [
        "a.md: service/nowhere.py"
    ]


def test_decision_without_section_is_found() -> None:
    good = "# 1\n" + "".join(f"## {title}\nx\n" for title in SECTIONS)
    assert not decision_faults("a", good)
    assert decision_faults("a", good.replace("## Enforced by\nx\n", ""))
    assert decision_faults("a", good.replace("## Decision\nx\n", "## Decision\n\n"))
    assert decision_faults("a", good + "x\n" * MOST_DECISION_LINES)


def test_unknown_make_target_is_found() -> None:
    targets = targets_of("demo: x\n\techo\ntest:\n")
    assert unknown_targets("`make demo` and `make tea`\n\n    make test X=1\n", targets) == ["tea"]


def test_error_without_heading_is_found() -> None:
    errors = [domain_errors.ConflictError, domain_errors.NotFoundError]
    assert errors_without_heading(errors, "## conflict\nnot-found") == ["NotFoundError"]
    assert not errors_without_heading(errors, "## ConflictError\n### `not-found` (404)")


def test_undescribed_name_is_found() -> None:
    assert undescribed(["tokens", "hidden"], "`tokens` hidden") == ["hidden"]
