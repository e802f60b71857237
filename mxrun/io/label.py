"""Transforms of labels."""

from __future__ import annotations

import numpy as np
from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.record import Draw, Record, RecordShape, Transform, register


@register("one_hot")
class OneHot(Transform):
    """A class's number as float32 [classes]: 1 at the class, 0 elsewhere."""

    classes: int = Option(ge=1, le=1 << 20, description="number of classes")
    label: str = Option(default="label", min_length=1, description="the field")

    @property
    def field(self) -> str:
        """The field that holds the classes."""
        return self.label

    def output(self, shape: RecordShape) -> RecordShape:
        """[classes]; raises UserError for a label that is more than one number."""
        if shape:
            raise UserError(Diagnostic("this is no class", expected="[]", got=f"{[*shape]}"))
        return (self.classes,)

    def source(self, spec: TensorSpec) -> TensorSpec:
        """One integer."""
        return TensorSpec((), "int32")

    def apply(self, record: Record, draw: Draw) -> Record:
        """float32 [classes]; raises UserError for a number that is no class."""
        number = int(record)
        if not 0 <= number < self.classes:
            expected = f"0 to {self.classes - 1}"
            raise UserError(Diagnostic("the label is no class", expected=expected, got=str(number)))
        result = np.zeros(self.classes, np.float32)
        result[number] = 1
        return result
