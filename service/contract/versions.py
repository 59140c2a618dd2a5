"""Version expressions of a request: an exact release, `latest`, `all`, or a PEP 440 range.

`all` and ranges such as `>=0.5,<0.7` stand for several releases, one for each code: releases whose
executed code is identical are twins, and the first of them answers for the others.
"""

import re
from collections.abc import Mapping, Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

LATEST, ALL = "latest", "all"
OPERATORS = "<>=!~"
"""What the text of a range begins with; no version and no kernel does."""
_PIECE = re.compile(r"(~=|==|!=|<=|>=|<|>)[A-Za-z0-9][A-Za-z0-9.+!_*\-]*")


def begins_range(text: str) -> bool:
    """Whether a text can only be a range, or a part of one."""
    return text.lstrip()[:1] in tuple(OPERATORS)


def names_several(version: str | None) -> bool:
    """Whether it stands for several releases."""
    return version is not None and (version == ALL or begins_range(version))


def tidy_range(text: str) -> str:
    """A range without spaces, its pieces in the order given.

    Raises: ValueError for what is no PEP 440 range.
    """
    plain = "".join(text.split())
    try:
        SpecifierSet(plain)
        good = all(_PIECE.fullmatch(piece) for piece in plain.split(","))
    except InvalidSpecifier:
        good = False
    if not good:
        raise ValueError(f"{text!r} is not a range of versions, such as >=0.5,<0.7")
    return plain


def first_of_its_code(version: str, twins: Mapping[str, str]) -> str:
    """The earliest release that runs the same code."""
    seen = {version}
    while version in twins and twins[version] not in seen:
        version = twins[version]
        seen.add(version)
    return version


def matching(expression: str, versions: Sequence[str], twins: Mapping[str, str]) -> list[str]:
    """Releases that `all` or a range stands for, oldest first: of each code the first inside it."""
    found: dict[str, str] = {}
    for version in versions:
        if expression == ALL or _lies_in(version, expression):
            found.setdefault(first_of_its_code(version, twins), version)
    return list(found.values())


def _lies_in(version: str, expression: str) -> bool:
    wanted = SpecifierSet(expression)
    try:
        # pre-releases only where the range names one; releases of `packaging` differ in the default
        return wanted.contains(Version(version), prereleases=bool(wanted.prereleases))
    except InvalidVersion:
        # a commit or the hash of a folder has no place in an order of releases
        return False
