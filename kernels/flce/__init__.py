"""Our fused linear cross entropy, version 1."""

from .op import linear_cross_entropy
from .plan import Plan, make_plan

__all__ = ["Plan", "linear_cross_entropy", "make_plan"]
