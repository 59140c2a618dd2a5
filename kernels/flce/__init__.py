"""Our fused linear cross entropy, version 1."""

from .v1.op import linear_cross_entropy
from .v1.plan import Plan, make_plan

__all__ = ["Plan", "linear_cross_entropy", "make_plan"]
