"""The order of versions on an axis."""

from collections.abc import Iterable
from typing import Any

from packaging.version import InvalidVersion, Version

NO_VERSION = "–"
"""Stands for a result that carries no version."""


def version_order(seen: Iterable[tuple[str | None, Any]]) -> list[str]:
    """Every version once: releases by PEP 440, then commits and folders by when they appeared.

    `seen`: versions with the moment, or anything that rises with it, of a result.
    """
    ranks: dict[str, tuple[int, Any]] = {}
    for version, _ in sorted(seen, key=lambda pair: pair[1]):
        name = version or NO_VERSION
        try:
            ranks.setdefault(name, (0, Version(name)))
        except InvalidVersion:
            ranks.setdefault(name, (1, len(ranks)))
    return sorted(ranks, key=lambda name: ranks[name])
