"""Implementation of `check-op`: checks of an operator's contract."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Any

from mxrun.commands.ops import example
from mxrun.contract.check import CheckOutcome, check_property
from mxrun.contract.problem import Violation
from mxrun.operator.property import GradientKind
from mxrun.operator.register import AnyProperty
from mxrun.preparation.plugins import named_operator

Description = dict[str, Any]


def check_operator(target: str, settings: Sequence[str] = ()) -> Description:
    """Run all checks of an operator, NAME or FILE:NAME, on generated cases.

    settings: `KEY=VALUE` parameters of all cases; by default the examples of the parameters and
    their other choices in turn. The operator's output is redirected to standard error. Raises
    UserError for an unknown operator, a file that cannot be loaded and invalid parameters.
    """
    with redirect_stdout(sys.stderr):
        prop = example(named_operator(target), settings)
        report = check_property(prop, [text.partition("=")[0] for text in settings])
    return {
        "operator": report.operator,
        "nonstandard_gradient": prop.nonstandard_gradient,
        "without_gradient": without_gradient(prop),
        "passed": report.passed,
        "cases": list(report.cases),
        "checks": [_outcome(outcome) for outcome in report.outcomes],
    }


def without_gradient(prop: AnyProperty) -> list[str]:
    """Return the arguments for which backward computes no gradient."""
    kinds = zip(prop.list_arguments(), prop.list_gradients(), strict=True)
    return [name for name, kind in kinds if kind is GradientKind.NONE]


def _outcome(outcome: CheckOutcome) -> Description:
    return {
        "name": outcome.check.name,
        "promise": outcome.check.promise,
        "passed": outcome.passed,
        "not_checked": outcome.missing or None,
        "problems": [_problem(problem) for problem in outcome.problems],
    }


def _problem(problem: Violation) -> Description:
    index = None if problem.index is None else list(problem.index)
    return {**asdict(problem), "index": index, "sentence": str(problem)}
