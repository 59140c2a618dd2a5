"""The checked-in catalogue and the service's estimates say exactly what the kernels' own say."""

import itertools
import json
import subprocess
import sys
from typing import Any

import pytest

from lossbench.kernels import catalogue as kernels
from lossbench.kernels.chunk_rules import ceil_div
from lossbench.kernels.estimates import _chunk_rows as kernel_chunk_rows
from lossbench.service.contract.case import Case
from lossbench.service.contract.catalogue import CATALOGUE_FILE, ParamRow, load_catalogue
from lossbench.service.contract.contender import Contender, ParamValue
from lossbench.service.contract.estimate import chunk_rows, peak_bytes
from lossbench.service.contract.words import Dtype

CATALOGUE = load_catalogue()
SHAPES = (
    (1, 1, 2),
    (7, 33, 129),
    (64, 32, 128),
    (4096, 4096, 128256),
    (4097, 2048, 32000),
    (8192, 4096, 128256),
    (12289, 576, 49152),
    (65536, 2304, 256000),
)


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_catalogue_file_equals_what_the_kernels_say_now() -> None:
    code = (
        "import json, sys; from lossbench.kernels.catalogue import as_json;"
        "assert 'torch' not in sys.modules; print(json.dumps(as_json()))"
    )
    expected = json.loads(run_python(code))
    stored = json.loads(CATALOGUE_FILE.read_text(encoding="utf-8"))
    assert stored == expected, (
        "write it anew: python -P -m lossbench.kernels.catalogue > service/contract/catalogue.json"
    )


LIGHT_MODULES = (
    "contract.plan",
    "contract.result",
    "statistics.grade",
    "statistics.summary",
    "store.jobs",
    "store.overviews",
    "store.reaper",
    "store.result_pages",
    "store.tokens",
    "store.work",
)


def test_contract_store_and_statistics_imported_bring_in_no_heavy_package() -> None:
    imports = ", ".join(f"lossbench.service.{module}" for module in LIGHT_MODULES)
    heavy = {"torch", "triton", "scipy", "pyarrow"}
    assert run_python(f"import sys, {imports}; print(sorted({heavy} & set(sys.modules)))") == "[]\n"


def test_kernel_estimates_imported_bring_in_no_torch() -> None:
    code = "import sys, lossbench.kernels.estimates; print('torch' in sys.modules)"
    assert run_python(code) == "False\n"


def some_params(row: Any) -> list[dict[str, ParamValue]]:
    """No params, and every param at each of its interesting values."""
    found: list[dict[str, ParamValue]] = [{}]
    for param in row.params:
        values = set(param.choices or ()) | {param.default}
        if param.kind == "int":
            values |= {int(param.minimum or 1), 2, 3, 100, 1024, 4096}
        allowed = [value for value in values if param.fault(value) is None]
        found += [{param.name: value} for value in allowed]
    return found


CELLS = [
    (name, params, shape, dtype)
    for name, row in CATALOGUE.kernels.items()
    for params, shape, dtype in itertools.product(some_params(row), SHAPES, Dtype)
]


def test_estimate_of_peak_bytes_agrees_with_the_kernels_own() -> None:
    compared = 0
    for name, params, (n, h, v), dtype in CELLS:
        spec, row = kernels.spec_of(name), CATALOGUE.kernels[name]
        for version in (None, *row.versions):
            contender = Contender(kernel=name, version=version, params=params)
            case = Case(tokens=n, hidden=h, vocab=v, dtype=dtype)
            ours = peak_bytes(CATALOGUE, contender, case)
            theirs = kernels.estimate_peak_bytes(spec, params, n, h, v, dtype.bytes, version)
            assert ours == theirs, f"{contender} {case}"
            assert ours >= (n * h + v * h) * dtype.bytes
            compared += 1
    assert compared > 5000


def test_estimate_of_chunk_rows_agrees_with_the_kernels_own() -> None:
    for name, params, (n, h, v), dtype in CELLS:
        spec, row = kernels.spec_of(name), CATALOGUE.kernels[name]
        complete = spec.complete(params)
        case = Case(tokens=n, hidden=h, vocab=v, dtype=dtype)
        ours = chunk_rows(row, complete, case)
        assert ours == kernel_chunk_rows(spec, complete, (n, h, v), dtype.bytes), f"{name} {case}"
        assert ceil_div(n, ours) >= 1


@pytest.mark.parametrize(
    ("row", "value", "fault"),
    [
        (ParamRow(name="rows", kind="int", minimum=1, maximum=8), 8, None),
        (ParamRow(name="rows", kind="int", minimum=1, maximum=8), 9, "rows lies in 1 .. 8"),
        (ParamRow(name="rows", kind="int", minimum=1), 0, "rows is at least 1"),
        (ParamRow(name="rows", kind="int", maximum=8), 9, "rows is at most 8"),
        (ParamRow(name="rows", kind="int", minimum=-4, maximum=0), 1, "rows lies in -4 .. 0"),
        (ParamRow(name="rows", kind="int"), 1.5, "rows is of type int"),
        (ParamRow(name="rows", kind="int"), True, "rows is of type int"),
        (ParamRow(name="eps", kind="float"), 2, None),
        (ParamRow(name="mode", kind="str"), 2, "mode is of type str"),
        (ParamRow(name="flag", kind="bool"), 1, "flag is true or false"),
        (ParamRow(name="flag", kind="bool"), None, "flag may not be null"),
        (ParamRow(name="flag", kind="bool", nullable=True), None, None),
    ],
)
def test_param_fault_says_what_is_allowed(
    row: ParamRow, value: ParamValue, fault: str | None
) -> None:
    assert row.fault(value) == fault
