"""What a failed self-test is called: apart from the test, which needs torch."""

import math
from typing import Any


def why_failed(result: dict[str, Any]) -> str:
    """One line on a failed A/A test."""
    differences = " and ".join(f"{math.expm1(abs(log)):.1%}" for log in result["log_ratios"])
    return (
        f"the self-test failed: two arms of the same code differed by {differences}, "
        f"at most {result['limit']:.0%} is accepted"
    )
