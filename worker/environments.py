"""Which environment a contender runs in: the built-in one, or a folder and variables of its own."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lossbench.kernels.catalogue import spec_of
from lossbench.kernels.errors import UnknownKernel, UnsupportedHere
from lossbench.kernels.kernel_spec import KernelSpec, Setup, holds
from lossbench.kernels.source_hash import code_hash
from lossbench.service.contract.contender import Contender

from .checkouts import files_of
from .install import Installed, Installer
from .known_contenders import KnownContenders
from .order import Say, silence

BUILT_IN = "built-in"
FILE_VARIABLE = "LOSSBENCH_CONTENDERS_FILE"


@dataclass(frozen=True)
class ContenderEnvironment:
    """One child environment: contenders with the same key share a process.

    `more_paths` follow `search_path`; `variables` are set before anything is imported;
    `provenance` says which files it is made of and goes into every result.
    """

    key: str
    search_path: Path | None = None
    interpreted: bool = False
    more_paths: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def wheel_sha256(self) -> str | None:
        """Hash of the package's own wheel, if it came from one."""
        return self.provenance.get("wheel_sha256")


class Environments:
    """Finds the environment of a contender on this machine, installing packages on demand.

    `worker` is who says so where a contender is not offered here.
    """

    def __init__(
        self,
        installer: Installer,
        device_type: str,
        known: KnownContenders = KnownContenders(),
        worker: str = "this machine",
    ) -> None:
        self._installer, self.device_type = installer, device_type
        self._offered, self._worker = known, worker
        self._known: dict[str, ContenderEnvironment] = {}

    def of(self, contender: Contender, say: Say = silence) -> ContenderEnvironment:
        """The environment.

        Raises UnsupportedHere where this machine does not offer the contender, InstallError when
        its files cannot be had.
        """
        spec = self._spec_of(contender)
        setup = setup_of(spec, contender)
        interpreted = spec.uses_triton and self.device_type == "cpu"
        key = _key(spec, contender, setup) + (" interpreted" if interpreted else "")
        is_new = key not in self._known
        if is_new and spec.origin in ("package", "checkout"):
            say(f"installing {contender} unless it is here already")
        # the files of a checkout may have changed: looked at every time
        if is_new or spec.origin == "checkout":
            self._known[key] = self._make(contender, spec, setup, (key, interpreted))
        return self._known[key]

    def _spec_of(self, contender: Contender) -> KernelSpec:
        try:
            spec = spec_of(contender.kernel)
        except UnknownKernel as error:
            raise UnsupportedHere(
                f"{self._worker} has no kernel {contender.kernel!r}: its plugin is not installed "
                "there, and its contenders file does not name it"
            ) from error
        if spec.origin == "checkout" and contender.kernel not in self._offered.checkouts:
            raise UnsupportedHere(
                f"{self._worker} has no files of {contender.kernel}: it runs only where the "
                f"contenders file names them ({FILE_VARIABLE})"
            )
        # a result of a folder must say what was in it; releases are the adapter's to tell
        any_will_do = contender.version is None and spec.origin != "checkout"
        if spec.versions and not any_will_do and contender.version not in spec.versions:
            here = f"{contender.kernel}@{spec.versions[-1]}"
            raise UnsupportedHere(f"{self._worker} has no {contender}; its newest is {here}")
        return spec

    def _make(
        self, contender: Contender, spec: KernelSpec, setup: Setup, named: tuple[str, bool]
    ) -> ContenderEnvironment:
        key, interpreted = named
        variables = dict(setup.variables)
        if spec.package is not None:
            version = contender.version or ""
            own = self._installer.install(spec.package, version, setup.requires)
            site = files = own.search_path
        elif spec.origin == "checkout":
            files = files_of(self._offered.checkouts[spec.name], self._installer.root)
            own = Installed(files, None)
            if setup.requires:
                own = self._installer.install_requires(setup.requires)
            site = own.search_path
            variables[FILE_VARIABLE] = str(self._offered.file)
        else:
            return ContenderEnvironment(key, None, interpreted, variables=variables)
        more = [] if site == files else [site]
        return ContenderEnvironment(
            key,
            files,
            interpreted,
            (*more, *(site / path for path in setup.paths)),
            variables,
            _provenance(own, files, spec),
        )


def setup_of(spec: KernelSpec, contender: Contender) -> Setup:
    """All setups that its params ask for, as one. Raises UnsupportedHere for params it lacks."""
    try:
        params = spec.complete(contender.params)
    except ValueError as error:
        raise UnsupportedHere(str(error)) from error
    asked = [setup for setup in spec.setups if holds(setup.when, params)]
    return Setup(
        requires=tuple(dict.fromkeys(pin for setup in asked for pin in setup.requires)),
        variables={name: text for setup in asked for name, text in setup.variables.items()},
        paths=tuple(dict.fromkeys(path for setup in asked for path in setup.paths)),
    )


def _key(spec: KernelSpec, contender: Contender, setup: Setup) -> str:
    own_files = spec.origin in ("package", "checkout")
    name = f"{spec.name}@{contender.version}" if own_files else BUILT_IN
    if beside := [*setup.requires, *setup.paths]:
        name += "+" + hashlib.sha256(" ".join(beside).encode()).hexdigest()[:8]
    return " ".join([name, *(f"{each}={text}" for each, text in sorted(setup.variables.items()))])


def _provenance(installed: Installed, files: Path, spec: KernelSpec) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "wheel_sha256": installed.wheel_sha256,
        "requires_sha256": dict(installed.requires_sha256),
        "source_hash": _source_hash(files, spec),
    }
    return {name: value for name, value in facts.items() if value}


def _source_hash(files: Path, spec: KernelSpec) -> str | None:
    if not spec.modules:
        return None
    try:
        return code_hash(files, spec.modules)
    except (ValueError, OSError):
        # the adapter says what it misses; a result without the hash is still a result
        return None
