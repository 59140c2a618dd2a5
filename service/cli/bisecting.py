"""`lossbench bisect`: between which two releases a kernel got slower, larger or less exact."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import typer
from packaging.version import Version

from ..contract.catalogue import Catalogue, is_older
from ..contract.contender import Contender
from ..contract.errors import InvalidRequestError, LossbenchError
from ..contract.job import JobRequest
from ..contract.plan import refuse, resolve_contender
from ..contract.words import JobKind
from ..plots.verdicts import Compared
from .comparing import fail_words, rows_here, rows_of
from .kernels import catalogue_here
from .measuring import Dtypes, Options, Passes, Shapes, Url, make_request, more_fields
from .output import console, print_json
from .verdicts import regressions

Measure = Callable[[Contender, Contender], Sequence[Compared]]


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(bisect)


def bisect(
    good: Annotated[str, typer.Argument(help="The earlier release, KERNEL@VERSION.")],
    bad: Annotated[str, typer.Argument(help="The later release of the same kernel.")],
    shape: Shapes = None,
    dtype: Dtypes = None,
    pass_: Passes = None,
    option: Options = None,
    fail_on: Annotated[
        str, typer.Option(help="What makes a release bad, as of `lossbench compare`.")
    ] = "slower",
    local: Annotated[bool, typer.Option("--local", help="Without a service, here.")] = False,
    gpu: Annotated[int | None, typer.Option(help="Index of the GPU, with --local.", min=0)] = None,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare releases in the middle until two neighbours are left; exit 1 if the later is good.

    Verdicts that the service has stored are used again. Releases of the same code count as one.

    Example: `lossbench bisect liger@0.5.0 liger@0.6.5 -s llama-3-8b:8192`
    """
    words = fail_words(fail_on)
    more = more_fields(dtype, pass_, option, None) | {"kind": JobKind.COMPARE.value}

    def measure(base: Contender, candidate: Contender) -> Sequence[Compared]:
        request: JobRequest = make_request(None, [base.text, candidate.text], shape, more)
        return rows_here(request, gpu) if local else rows_of(request, url, True, not as_json)

    line = releases_between(catalogue_here(), good, bad)
    steps = list(search(line, measure, words or frozenset()))
    first_bad = next((candidate for _, candidate, why in reversed(steps) if why), None)
    if as_json:
        rows = [{"base": a.text, "candidate": b.text, "failed_on": why} for a, b, why in steps]
        print_json({"first_bad": first_bad.text if first_bad else None, "steps": rows})
    else:
        for base, candidate, why in steps:
            console.print(f"{candidate} against {base}: {', '.join(why) or 'good'}", markup=False)
        _say(line, first_bad)
    sys.exit(0 if first_bad else 1)


def _say(line: Sequence[Contender], first_bad: Contender | None) -> None:
    if first_bad is None:
        console.print(f"{line[-1]} is not bad against {line[0]}", markup=False)
        return
    before = line[line.index(first_bad) - 1]
    console.print(f"the first bad release is {first_bad}; {before} is good", markup=False)


def releases_between(catalogue: Catalogue, good: str, bad: str) -> list[Contender]:
    """One release of each code from `good` to `bad`, both included. Raises InvalidRequestError."""
    ends = []
    for place, text in enumerate((good, bad)):
        try:
            asked = Contender.parse(text)
        except ValueError as error:
            raise InvalidRequestError(f"{text!r} is not a contender such as liger@0.6.5") from error
        found, faults = resolve_contender(asked, catalogue, f"/{place}")
        refuse(faults)
        ends.append(found)
    first, last = ends
    row = catalogue.kernels[first.kernel]
    if first.kernel != last.kernel or first.params != last.params:
        raise InvalidRequestError("a bisection is over two releases of one kernel, params alike")
    if not first.version or not last.version or not is_older(first.version, last.version):
        raise InvalidRequestError(
            f"name the earlier release first: {last} is not newer than {first}"
        )
    code = {version: row.twins.get(version, version) for version in row.versions}
    ends_at = (Version(first.version), Version(last.version))
    order = sorted(map(Version, row.versions))
    seen: dict[str, str] = {}
    for version in (str(each) for each in order if ends_at[0] <= each <= ends_at[1]):
        seen.setdefault(code[version], version)
    if len(seen) < 2:
        raise InvalidRequestError(f"{first} and {last} run the same code")
    return [first.model_copy(update={"version": version}) for version in seen.values()]


def search(
    line: Sequence[Contender], measure: Measure, words: frozenset[str]
) -> Iterator[tuple[Contender, Contender, list[str]]]:
    """(base, candidate, why it is bad) of each comparison; the last bad candidate is the first bad.

    Raises LossbenchError where a release in the middle gets no verdict.
    """
    low, high = 0, len(line) - 1
    why = _findings(measure(line[low], line[high]), words)
    yield line[low], line[high], why
    if not why:
        return
    while high - low > 1:
        middle = (low + high) // 2
        why = _findings(measure(line[0], line[middle]), words)
        yield line[0], line[middle], why
        low, high = (low, middle) if why else (middle, high)


def _findings(rows: Sequence[Compared], words: frozenset[str]) -> list[str]:
    found = [word for row in rows for word in regressions(row, words)]
    undecided = [row for row in rows if row.verdict in ("inconclusive", "not_measured")]
    if not found and undecided:
        row = undecided[0]
        raise LossbenchError(
            f"no verdict on {row.candidate[0].contender} against {row.base[0].contender} "
            f"({row.reason or row.verdict}); use a larger shape, or another --fail-on"
        )
    return list(dict.fromkeys(found))
