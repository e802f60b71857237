"""Transforms of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.transforms.base import ChunkTransform, Record, RecordShape, register


@register(
    "one_hot",
    foreign={
        "{one_hot: {classes: 10}}": "tocategorical categoryencoding",
    },
)
class OneHot(ChunkTransform):
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

    def convert(self, records: NDArray[Any]) -> NDArray[np.float32]:
        """Return float32 [n, classes]."""
        result = np.zeros((len(records), self.classes), np.float32)
        rows = np.flatnonzero(~self.unfit(records))
        result[rows, records[rows].astype(np.int64)] = 1
        return result

    def unfit(self, records: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which records are not in 0 .. classes - 1."""
        found: NDArray[np.bool_] = ~((records >= 0) & (records < self.classes))
        return found

    def refusal(self, record: Record) -> UserError:
        """Return the error of a number that is no class."""
        problem, expected = "the label is not a class number", f"0 to {self.classes - 1}"
        return UserError(Diagnostic(problem, expected=expected, got=str(int(record))))
