"""The operator contract as a program: what every operator promises, tried on cases.

A promise is a `Check`; `check_operator` tries all of them on an operator's cases and answers a
`Report`, in which every failure is one sentence. `check_property` makes the cases up itself.
"""

from mxrun.operator.contract.case import Case, Objective
from mxrun.operator.contract.check import (
    CHECKS,
    Check,
    Outcome,
    Report,
    check_operator,
    check_property,
)
from mxrun.operator.contract.problem import Problem

__all__ = [
    "CHECKS",
    "Case",
    "Check",
    "Objective",
    "Outcome",
    "Problem",
    "Report",
    "check_operator",
    "check_property",
]
