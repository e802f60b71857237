"""Transforms of labels."""

from __future__ import annotations

import numpy as np
from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.transforms.base import Draw, Record, RecordShape, Transform, register


@register("one_hot")
class OneHot(Transform):
    """Convert a class number to float32 [classes]: 1 at the class, 0 elsewhere."""

    classes: int = Option(ge=1, le=1 << 20, description="Number of classes.", examples=[10])
    label: str = Option(
        default="label", min_length=1, description="Name of the field that holds the class numbers."
    )

    @property
    def field(self) -> str:
        """Name of the field that holds the classes."""
        return self.label

    def output(self, shape: RecordShape) -> RecordShape:
        """Return [classes]; raises UserError if a label is more than one number."""
        if shape:
            raise UserError(
                Diagnostic("a class number is a scalar", expected="[]", got=f"{[*shape]}")
            )
        return (self.classes,)

    def source(self, spec: TensorSpec) -> TensorSpec:
        """Return the spec of one integer."""
        return TensorSpec((), "int32")

    def apply(self, record: Record, draw: Draw) -> Record:
        """Return float32 [classes]; raises UserError unless the number is in 0 .. classes - 1."""
        number = int(record)
        if not 0 <= number < self.classes:
            problem, expected = "the label is not a class number", f"0 to {self.classes - 1}"
            raise UserError(Diagnostic(problem, expected=expected, got=str(number)))
        result = np.zeros(self.classes, np.float32)
        result[number] = 1
        return result
