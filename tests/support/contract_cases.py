"""The table of operator cases as the contract checker's."""

from __future__ import annotations

from functools import cache, partial

from operator_row import Row
from operator_rows import OBJECTIVES, ROWS

from mxrun.contract.case import Case, CaseRunner

OPERATORS = sorted({row.operator for row in ROWS})


def case_of(row: Row) -> Case:
    """Return the case of a row, with its values in both types."""
    objective = OBJECTIVES.get(row.operator)
    return Case(
        name=str(row),
        prop=row.create(),
        inputs={dtype: tuple(row.inputs(dtype)) for dtype in ("float32", "float64")},
        is_train=row.is_train,
        differentiable=row.differentiable,
        objective=None if objective is None else partial(objective, row),
    )


@cache
def runners(operator: str) -> tuple[CaseRunner, ...]:
    """Return the rows of an operator; all checks share their runs."""
    return tuple(CaseRunner(case_of(row)) for row in ROWS if row.operator == operator)
