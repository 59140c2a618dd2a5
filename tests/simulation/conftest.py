"""Makes the simulation's modules importable, and shows its figures after the tests."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

_SHOWN: list[str] = []


@pytest.fixture
def shown() -> list[str]:
    """Text for the end of pytest's report."""
    return _SHOWN


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables, with or without `-s`."""
    for text in _SHOWN:
        terminalreporter.section("simulated error rates")
        terminalreporter.write_line(text)
