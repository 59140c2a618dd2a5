"""Names of one kernel over time: a renamed kernel keeps its history under its name of today."""

from .catalogue import Catalogue


def current_name(name: str, catalogue: Catalogue) -> str:
    """Name of today of a kernel; a name that nobody knows stays as it is.

    An alias counts only while no kernel carries it. An operator's files, which take over the row of
    the kernel they stand in for, have no aliases.
    """
    if name in catalogue.kernels:
        return name
    rows = sorted(catalogue.kernels.values(), key=lambda row: row.name)
    return next((r.name for r in rows if r.origin != "checkout" and name in r.aliases), name)


def names_of(name: str, catalogue: Catalogue) -> tuple[str, ...]:
    """Every name that results of this kernel may be stored under, that of today first."""
    today = current_name(name, catalogue)
    row = catalogue.kernels.get(today)
    earlier = row.aliases if row is not None else ()
    return (today, *(each for each in earlier if current_name(each, catalogue) == today))
