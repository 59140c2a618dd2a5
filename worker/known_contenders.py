"""What this machine offers beyond the shipped catalogue: plugins and the operator's contenders.

The operator's file is YAML: `name: {kernel: liger, path: /dir}`, or with `wheel: /file.whl`, or
with `git: URL, commit: 40 hexadecimal digits`. `kernel` is the one whose adapter calls the files.
Requests never name a folder, a wheel or a repository.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from lossbench.kernels.catalogue import CATALOGUE, register, rows
from lossbench.kernels.kernel_spec import KernelSpec
from lossbench.kernels.plugins import discover
from lossbench.kernels.source_hash import SIGNS, files_hash
from lossbench.service.contract.catalogue import (
    Catalogue,
    KernelRow,
    load_catalogue,
    with_offers,
)
from lossbench.service.contract.errors import SetupError
from lossbench.service.settings import Settings

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
FIELDS = ({"kernel", "path"}, {"kernel", "wheel"}, {"kernel", "git", "commit"})


@dataclass(frozen=True)
class Checkout:
    """An operator's contender: its spec, and where its files are: a folder, a commit or a wheel."""

    spec: KernelSpec
    folder: Path | None = None
    git: str = ""
    commit: str = ""
    wheel: Path | None = None

    @property
    def version(self) -> str:
        """Its only version: `git-` and the commit, or `path-` or `wheel-` and the files' hash."""
        return self.spec.versions[-1]


@dataclass(frozen=True)
class KnownContenders:
    """Plugins' and operator's kernels; `faults` are lines about plugins that are not used.

    `file` is the operator's, for a measuring process to read it again.
    """

    specs: tuple[KernelSpec, ...] = ()
    checkouts: Mapping[str, Checkout] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    file: Path | None = None

    def rows(self) -> dict[str, Any]:
        """Catalogue rows by name, as a worker registers them."""
        return rows(self.specs)

    def catalogue(self) -> Catalogue:
        """The shipped catalogue and what this machine offers beside it."""
        return with_offers(load_catalogue(), [self.rows()])


def register_known(settings: Settings) -> KnownContenders:
    """Offer all of it in this process. Raises SetupError for a bad contenders file."""
    known = known_contenders(settings)
    register(known.specs)
    return known


def own_catalogue(settings: Settings) -> Catalogue:
    """What can be measured here, offered in this process too. Raises SetupError as above."""
    return register_known(settings).catalogue()


def known_contenders(settings: Settings) -> KnownContenders:
    """Plugins and the operator's contenders. Raises SetupError for a bad contenders file."""
    plugins = discover()
    faults = list(plugins.faults)
    offered = {spec.name: spec for spec in plugins.specs}
    for name, spec in list(offered.items()):
        if wrong := _row_fault(spec):
            faults.append(f"kernel {name!r} of a plugin: {wrong}")
            del offered[name]
    checkouts: dict[str, Checkout] = {}
    file = settings.contenders_file
    if file is not None:
        file = file.expanduser().resolve()
        checkouts = read_contenders_file(file, {**CATALOGUE, **offered})
    own = {name: checkout.spec for name, checkout in checkouts.items()}
    return KnownContenders(tuple({**offered, **own}.values()), checkouts, tuple(faults), file)


def _row_fault(spec: KernelSpec) -> str | None:
    """Why the service could not read a kernel's row, or None."""
    try:
        KernelRow.model_validate_json(json.dumps(rows([spec])[spec.name]))
    except (ValidationError, TypeError, ValueError) as error:
        return str(error).replace("\n", " ")[:200]
    return None


def read_contenders_file(file: Path, bases: Mapping[str, KernelSpec]) -> dict[str, Checkout]:
    """The operator's contenders by name. Raises SetupError naming file, entry and what is wrong."""
    try:
        entries = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SetupError(f"contenders file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SetupError(f"contenders file {file}: not a UTF-8 text file") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" (line {mark.line + 1})" if mark else ""
        raise SetupError(f"contenders file {file}: not YAML: {error.problem}{where}") from error
    if entries is None:
        return {}
    if not isinstance(entries, dict):
        raise SetupError(f"contenders file {file}: must be a mapping of names to entries")
    found = {}
    for name, entry in entries.items():
        try:
            found[str(name)] = _checkout(name, entry, file.parent, bases)
        except (ValueError, OSError) as error:
            raise SetupError(f"contenders file {file}: {name}: {error}") from error
    return found


def _checkout(
    name: object, entry: object, beside: Path, bases: Mapping[str, KernelSpec]
) -> Checkout:
    """One entry. Raises ValueError or OSError saying what is wrong with it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("a name is a lower-case word such as my-loss")
    if not isinstance(entry, dict) or set(entry) not in FIELDS:
        raise ValueError(
            "write {kernel: .., path: ..}, {kernel: .., wheel: ..} or "
            "{kernel: .., git: .., commit: ..}"
        )
    if bad := sorted(key for key, value in entry.items() if not isinstance(value, str)):
        raise ValueError(f"{bad[0]} must be a text: put it in quotes")
    base = bases.get(entry["kernel"])
    if base is None:
        raise ValueError(f"there is no kernel {entry['kernel']!r}; known: {', '.join(bases)}")
    if base.origin not in ("package", "checkout"):
        raise ValueError(f"kernel {base.name} is built in: its files cannot be replaced")
    if name in bases and not (name == base.name and base.origin == "checkout"):
        raise ValueError(f"there is a kernel {name!r} already; give it another name")
    return _placed(base, name, entry, beside)


def _placed(base: KernelSpec, name: str, entry: Mapping[str, str], beside: Path) -> Checkout:
    """An entry whose kernel and name are right. Raises ValueError, OSError."""
    if "path" in entry:
        folder = (beside / Path(entry["path"]).expanduser()).resolve()
        return Checkout(_derived(base, name, f"path-{path_hash(folder)}"), folder)
    if "wheel" in entry:
        wheel = (beside / Path(entry["wheel"]).expanduser()).resolve()
        return Checkout(_derived(base, name, f"wheel-{wheel_hash(wheel)}"), wheel=wheel)
    if not _COMMIT.fullmatch(entry["commit"]):
        raise ValueError(f"commit {entry['commit']!r} is not 40 hexadecimal digits")
    if not entry["git"] or entry["git"].startswith("-") or "::" in entry["git"]:
        raise ValueError(f"git {entry['git']!r} is not the address of a repository")
    spec = _derived(base, name, f"git-{entry['commit'][:SIGNS]}")
    return Checkout(spec, None, entry["git"], entry["commit"])


def _derived(base: KernelSpec, name: str, version: str) -> KernelSpec:
    summary = f"{base.summary} (the operator's files)"
    changes = {"name": name, "origin": "checkout", "package": None, "versions": (version,)}
    return replace(base, **changes, summary=summary, twins={})  # type: ignore[arg-type]


def importable(folder: Path) -> Path:
    """What goes on the path: `src` where a project has one, else the folder."""
    source = folder / "src"
    return source if source.is_dir() else folder


def path_hash(folder: Path) -> str:
    """Hash of the files that a folder puts on the path. Raises ValueError, OSError."""
    if not folder.is_dir():
        raise ValueError(f"path {folder} is no folder")
    return files_hash(importable(folder))


def wheel_hash(wheel: Path) -> str:
    """First digits of a wheel's sha256. Raises ValueError, OSError."""
    if wheel.suffix != ".whl":
        raise ValueError(f"wheel {wheel} is no .whl file")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()[:SIGNS]
