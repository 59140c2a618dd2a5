"""Files of an operator's contender: a folder as it is, one commit of a repository, or a wheel.

A commit is cloned and a wheel is unpacked once, into a folder of its own, which appears whole or
not at all. Nothing of it is executed (no build, no hooks, no submodules), and no dependency comes.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from lossbench.service.contract.errors import InstallError

from .install import RECORD, SITE, locked, run_pip
from .known_contenders import Checkout, importable, path_hash, wheel_hash

GIT_TIMEOUT_S = 600
_LOGIN = re.compile(r"(?<=://)[^/\s@]+@")
_SAFE = (
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "protocol.ext.allow=never"),
    *("-c", "submodule.recurse=false"),
    *("-c", "advice.detachedHead=false"),
)


def files_of(checkout: Checkout, root: Path) -> Path:
    """Folder to put on the path; clones or unpacks below `root` when it is not there yet.

    Raises InstallError in one line.
    """
    name, version = checkout.spec.name, checkout.version
    folder = checkout.folder
    if folder is None:
        return importable(_made(checkout, root / f"{name}-{version}"))
    _check_same(checkout, folder, lambda: f"path-{path_hash(folder)}")
    return importable(folder)


def _check_same(checkout: Checkout, place: Path, read: Callable[[], str]) -> None:
    """That a folder or wheel is what it was when this worker began. Raises InstallError."""
    name, version = checkout.spec.name, checkout.version
    try:
        now = read()
    except (ValueError, OSError) as error:
        raise InstallError(f"{name}: {error}") from error
    if now != version:
        raise InstallError(
            f"{name}: what is in {place} has changed since this worker began "
            f"({version}, now {now}); start it again"
        )


def _made(checkout: Checkout, folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock")):
        if not (folder / RECORD).exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                facts = _fill(checkout, made / SITE)
                (made / RECORD).write_text(json.dumps(facts), encoding="utf-8")
                if folder.exists():
                    shutil.rmtree(folder)
                os.rename(made, folder)
    return folder / SITE


def _fill(checkout: Checkout, target: Path) -> dict[str, str]:
    """Put the files there; returns where they come from."""
    if checkout.wheel is None:
        _check_out(checkout, target)
        return {"commit": checkout.commit}
    wheel = checkout.wheel
    _check_same(checkout, wheel, lambda: f"wheel-{wheel_hash(wheel)}")
    try:
        run_pip("install", "--no-index", "--no-deps", "--target", str(target), "--", str(wheel))
    except InstallError as error:
        raise InstallError(f"{checkout.spec.name}: {error}") from error
    return {"wheel": wheel.name, "hash": checkout.version}


def _check_out(checkout: Checkout, target: Path) -> None:
    name, commit = checkout.spec.name, checkout.commit
    quiet = ("--quiet", "--no-checkout", "--template=", "--no-recurse-submodules")
    _git(name, "clone", *quiet, "--", checkout.git, str(target))
    inside = ("-C", str(target))
    try:
        _git(name, *inside, "checkout", "--quiet", "--detach", commit)
    except InstallError:
        # a commit of no branch, as of a pull request, is not in the clone
        _git(name, *inside, "fetch", "--quiet", "origin", commit)
        _git(name, *inside, "checkout", "--quiet", "--detach", commit)
    found = _git(name, *inside, "rev-parse", "HEAD").strip()
    if found != commit:
        raise InstallError(f"{name}: git checked out {found[:12]}, not {commit[:12]}")


def _git(name: str, *arguments: str) -> str:
    variables = {
        **os.environ,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }
    try:
        done = subprocess.run(
            ["git", *_SAFE, *arguments],
            env=variables,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise InstallError(f"{name}: a commit needs git, which is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{name}: git took more than {GIT_TIMEOUT_S} s") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith(("fatal", "error"))]
        why = (lines or done.stderr.splitlines() or ["no message"])[-1]
        raise InstallError(f"{name}: git: {_LOGIN.sub('', why)}")
    return done.stdout
