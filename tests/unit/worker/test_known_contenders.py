"""The operator's contenders file: what it offers, and one line for everything that can be wrong."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lossbench.kernels.catalogue import CATALOGUE, register, spec_of
from lossbench.kernels.plugins import Plugins
from lossbench.service.contract.errors import SetupError
from lossbench.service.settings import Settings
from lossbench.worker import known_contenders as subject
from lossbench.worker.known_contenders import KnownContenders, own_catalogue, register_known

COMMIT = "0123456789abcdef0123456789abcdef01234567"
Write = Callable[[str], Settings]


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No plugins of the machine that runs the tests."""
    monkeypatch.setattr(subject, "discover", Plugins)
    yield
    register(())


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the file; gives settings that name it. Beside it lies a folder `tree`."""
    (tmp_path / "tree" / "pkg").mkdir(parents=True)
    (tmp_path / "tree" / "pkg" / "a.py").write_text("x = 1\n")
    (tmp_path / "bare").mkdir()

    def settings(text: str) -> Settings:
        file = tmp_path / "contenders.yaml"
        file.write_text(text)
        return Settings(data_dir=tmp_path / "data", contenders_file=file)

    return settings


def test_known_contenders_without_a_file_are_none(tmp_path: Path) -> None:
    assert register_known(Settings(data_dir=tmp_path)) == KnownContenders()


def test_known_contenders_of_a_file_are_kernels_of_their_own(write: Write, tmp_path: Path) -> None:
    entry = "branch: {kernel: liger, path: tree}\n"
    known = register_known(write(f"{entry}pr: {{kernel: liger, git: /r, commit: {COMMIT}}}"))
    branch, pr = known.specs
    assert (branch.name, branch.origin, branch.package, branch.twins) == (
        "branch",
        "checkout",
        None,
        {},
    )
    assert (branch.params, branch.build) == (CATALOGUE["liger"].params, CATALOGUE["liger"].build)
    assert branch.versions[0].startswith("path-")
    assert len(branch.versions[0]) == 17
    assert pr.versions == ("git-0123456789ab",)
    assert known.checkouts["branch"].folder == tmp_path / "tree"
    assert spec_of("branch") is branch
    row = own_catalogue(write(entry)).kernels["branch"]
    assert (row.latest, row.is_built_in) == (branch.versions[0], False)


def test_known_contenders_version_follows_the_python_files(write: Write, tmp_path: Path) -> None:
    settings = write("branch: {kernel: liger, path: tree}")
    tree = tmp_path / "tree"

    def version() -> str:
        return register_known(settings).checkouts["branch"].version

    first = version()
    (tree / "notes.md").write_text("no code\n")
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "b.py").write_text("x = 2\n")
    (tree / ".venv").mkdir()
    (tree / ".venv" / "c.py").write_text("x = 2\n")
    assert version() == first
    (tree / "pkg" / "a.py").write_text("x = 2\n")
    changed = version()
    (tree / "pkg" / "a.py").rename(tree / "pkg" / "b.py")
    moved = version()
    (tree / "src").mkdir()
    (tree / "src" / "only.py").write_text("x = 2\n")
    assert len({first, changed, moved, version()}) == 4


def test_known_contenders_may_carry_the_name_of_a_checkout_kernel(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = replace(CATALOGUE["liger"], name="bare", origin="checkout", package=None, versions=())
    monkeypatch.setitem(CATALOGUE, "bare", bare)
    known = register_known(write("bare: {kernel: bare, path: tree}"))
    assert spec_of("bare").versions == (known.checkouts["bare"].version,)
    with pytest.raises(SetupError, match="there is a kernel 'bare' already"):
        register_known(write("bare: {kernel: liger, path: tree}"))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("branch: [", r"not YAML: .* \(line 1\)"),
        ("- branch", "must be a mapping"),
        ("Branch: {kernel: liger, path: tree}", "Branch: a name is a lower-case word"),
        ("7: {kernel: liger, path: tree}", "7: a name is a lower-case word"),
        ("branch: liger", "branch: write {kernel"),
        ("branch: {kernel: liger}", "branch: write {kernel"),
        (f"branch: {{kernel: liger, path: tree, commit: {COMMIT}}}", "branch: write {kernel"),
        ("branch: {kernel: liger, path: 7}", "branch: path must be a text"),
        ("branch: {kernel: liga, path: tree}", "branch: there is no kernel 'liga'; known: torch"),
        ("branch: {kernel: torch-naive, path: tree}", "branch: kernel torch-naive is built in"),
        ("liger: {kernel: liger, path: tree}", "there is a kernel 'liger' already"),
        ("branch: {kernel: liger, path: nowhere}", "branch: path .*nowhere is no folder"),
        ("branch: {kernel: liger, path: bare}", "branch: .*bare holds no Python files"),
        ("branch: {kernel: liger, git: /r, commit: main}", "commit 'main' is not 40 hex"),
        (
            f"branch: {{kernel: liger, git: '--x', commit: {COMMIT}}}",
            "git '--x' is not the address",
        ),
        (f"branch: {{kernel: liger, git: 'ext::sh', commit: {COMMIT}}}", "is not the address"),
        (f"branch: {{kernel: liger, git: /r, commit: {'1' * 40}}}", "commit must be a text"),
    ],
)
def test_known_contenders_of_a_bad_file_are_one_clear_line(
    write: Write, text: str, wrong: str
) -> None:
    with pytest.raises(SetupError, match=wrong) as caught:
        register_known(write(text))
    assert "\n" not in caught.value.message
    assert "contenders.yaml: " in caught.value.message


def test_known_contenders_of_a_missing_or_binary_file_say_so(tmp_path: Path) -> None:
    file = tmp_path / "none.yaml"
    settings = Settings(data_dir=tmp_path, contenders_file=file)
    with pytest.raises(SetupError, match=r"none\.yaml: No such file"):
        register_known(settings)
    file.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(SetupError, match="not a UTF-8 text file"):
        register_known(settings)


def test_known_contenders_of_an_empty_file_are_none(write: Write) -> None:
    assert register_known(write("# nothing yet\n")).specs == ()


def test_known_contenders_leave_out_plugins_that_the_service_could_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = replace(CATALOGUE["torch-naive"], name="good")
    bad = replace(good, name="bad", summary=b"bytes")  # type: ignore[arg-type]
    monkeypatch.setattr(subject, "discover", lambda: Plugins((good, bad), ("plugin x: broken",)))
    known = register_known(Settings(data_dir=tmp_path))
    assert [spec.name for spec in known.specs] == ["good"]
    assert known.faults[0] == "plugin x: broken"
    assert known.faults[1].startswith("kernel 'bad' of a plugin: ")
