"""Commits of real git repositories, cloned without running anything of them."""

import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lossbench.kernels.catalogue import CATALOGUE
from lossbench.service.contract.errors import InstallError, SetupError
from lossbench.worker import checkouts
from lossbench.worker.checkouts import files_of
from lossbench.worker.known_contenders import Checkout, read_contenders_file

Commit = Callable[[str], str]


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty repository."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    return folder


@pytest.fixture
def commit(repository: Path) -> Commit:
    """Commits this text as `own_loss.py`; gives the commit."""

    def make(text: str) -> str:
        (repository / "own_loss.py").write_text(text)
        git(repository, "add", ".")
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        git(repository, *who, "commit", "--quiet", "--message", "x")
        return git(repository, "rev-parse", "HEAD")

    return make


def checkout(address: str, commit: str) -> Checkout:
    version = f"git-{commit[:12]}"
    spec = replace(CATALOGUE["liger"], name="mine", origin="checkout", versions=(version,))
    return Checkout(spec, None, address, commit)


def test_files_of_a_commit_are_exactly_that_commit(
    repository: Path, commit: Commit, tmp_path: Path
) -> None:
    old, new = commit("x = 1\n"), commit("x = 2\n")
    for made, text in ((old, "x = 1\n"), (new, "x = 2\n")):
        files = files_of(checkout(str(repository), made), tmp_path / "contenders")
        assert (files / "own_loss.py").read_text() == text
        assert files == tmp_path / "contenders" / f"mine-git-{made[:12]}" / "site-packages"


def test_files_of_a_commit_that_is_here_ask_git_nothing(
    repository: Path, commit: Commit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = checkout(str(repository), commit("x = 1\n"))
    first = files_of(wanted, tmp_path)
    monkeypatch.setattr(checkouts, "_git", lambda *_: pytest.fail("git was asked"))
    assert files_of(wanted, tmp_path) == first


def test_files_of_a_commit_of_no_branch_are_fetched(
    repository: Path, commit: Commit, tmp_path: Path
) -> None:
    commit("x = 1\n")
    lost = commit("x = 2\n")
    git(repository, "reset", "--quiet", "--hard", "HEAD~1")
    git(repository, "config", "uploadpack.allowAnySHA1InWant", "true")
    files = files_of(checkout(f"file://{repository}", lost), tmp_path)
    assert (files / "own_loss.py").read_text() == "x = 2\n"


def test_files_of_a_commit_with_src_are_below_it(
    repository: Path, commit: Commit, tmp_path: Path
) -> None:
    (repository / "src").mkdir()
    (repository / "src" / "deep.py").write_text("y = 1\n")
    files = files_of(checkout(str(repository), commit("x = 1\n")), tmp_path)
    assert files.name == "src"
    assert (files / "deep.py").exists()


def test_files_of_a_commit_run_nothing_of_the_repository(
    repository: Path, commit: Commit, tmp_path: Path
) -> None:
    """Neither hooks of a template nor a setup.py."""
    proof = tmp_path / "it-ran"
    hook = tmp_path / "template" / "hooks" / "post-checkout"
    hook.parent.mkdir(parents=True)
    hook.write_text(f"#!/bin/sh\ntouch {proof}\n")
    hook.chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[init]\n templateDir = {hook.parents[1]}\n[core]\n hooksPath = {hook.parent}\n"
    )
    (repository / "setup.py").write_text(f"open({str(proof)!r}, 'w')\n")
    wanted = checkout(str(repository), commit("x = 1\n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_GLOBAL", str(config))
        files_of(wanted, tmp_path / "contenders")
    assert not proof.exists()


@pytest.mark.parametrize("address", ["/nowhere/at/all", "file:///nowhere/at/all"])
def test_files_of_a_commit_out_of_reach_are_one_line_and_leave_nothing(
    address: str, tmp_path: Path
) -> None:
    with pytest.raises(InstallError, match="mine: git: ") as caught:
        files_of(checkout(address, "0" * 40), tmp_path)
    assert "\n" not in caught.value.message
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_files_of_a_commit_that_does_not_exist_leave_nothing(
    repository: Path, commit: Commit, tmp_path: Path
) -> None:
    commit("x = 1\n")
    root = tmp_path / "contenders"
    with pytest.raises(InstallError, match="mine: git: "):
        files_of(checkout(str(repository), "0" * 40), root)
    assert [path.suffix for path in root.iterdir()] == [".lock"]


def test_files_of_a_commit_without_git_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InstallError, match="needs git, which is not installed"):
        files_of(checkout("/r", "0" * 40), tmp_path)


def test_login_in_an_address_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "git"
    fake.write_text(
        "#!/bin/sh\necho \"fatal: unable to access 'https://me:hidden@h/r'\" >&2; exit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(InstallError, match="https://h/r") as caught:
        files_of(checkout("https://me:hidden@h/r", "0" * 40), tmp_path / "contenders")
    assert "hidden" not in caught.value.message


def wheel_of(folder: Path, text: str) -> None:
    """A real wheel with one module of this text."""
    wheel = folder / "own_loss-1.0-py3-none-any.whl"
    about = "own_loss-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("own_loss.py", text)
        packed.writestr(
            f"{about}/METADATA",
            "Metadata-Version: 2.1\nName: own-loss\nVersion: 1.0\nRequires-Dist: no-such-package\n",
        )
        packed.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(f"{about}/RECORD", "")


def test_wheel_is_unpacked_once_and_only_as_it_was(tmp_path: Path) -> None:
    wheel_of(tmp_path, "x = 1\n")
    file = tmp_path / "contenders.yaml"
    file.write_text("mine: {kernel: liger, wheel: own_loss-1.0-py3-none-any.whl}\n")
    (known,) = read_contenders_file(file, CATALOGUE).values()
    assert known.version.startswith("wheel-")
    files = files_of(known, tmp_path / "contenders")
    assert (files / "own_loss.py").read_text() == "x = 1\n"
    assert files == files_of(known, tmp_path / "contenders")
    wheel_of(tmp_path, "x = 2\n")
    (newer,) = read_contenders_file(file, CATALOGUE).values()
    assert newer.version != known.version
    with pytest.raises(InstallError, match="has changed since this worker began"):
        files_of(known, tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("entry", "said"),
    [("missing.whl", "No such file"), ("contenders.yaml", r"is no \.whl file")],
)
def test_wheel_that_is_not_there_or_none_is_named(tmp_path: Path, entry: str, said: str) -> None:
    file = tmp_path / "contenders.yaml"
    file.write_text(f"mine: {{kernel: liger, wheel: {entry}}}\n")
    with pytest.raises(SetupError, match=f"mine: .*{said}"):
        read_contenders_file(file, CATALOGUE)
