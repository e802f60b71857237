"""Table of operator cases: every operator test runs all of them.

Each module of `families` has the cases of one family: `ROWS`, an independent formula for each
operator in `REFERENCES`, formulas for rows with `is_train` off in `EVALUATED` if they differ, and
in `OBJECTIVES` the scalar that backward differentiates if it is not <out_grad, outputs>.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from operator_row import Objective, Reference, Row

FAMILIES = [
    importlib.import_module(f"families.{path.stem}")
    for path in sorted(Path(__file__).with_name("families").glob("*.py"))
]
ROWS: list[Row] = [row for family in FAMILIES for row in family.ROWS]
REFERENCES: dict[str, Reference] = {
    name: reference for family in FAMILIES for name, reference in family.REFERENCES.items()
}
EVALUATED: dict[str, Reference] = {
    name: reference
    for family in FAMILIES
    for name, reference in getattr(family, "EVALUATED", {}).items()
}
OBJECTIVES: dict[str, Objective] = {
    name: objective
    for family in FAMILIES
    for name, objective in getattr(family, "OBJECTIVES", {}).items()
}
DIFFERENTIABLE = [row for row in ROWS if row.has_gradient and row.is_train]
