"""Rows that transforms make of one record."""

from __future__ import annotations

import numpy as np

from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.fields import LazyField
from mxrun.io.transforms.base import TRANSFORMS, Transform
from mxrun.io.transforms.pipeline import Pipeline
from mxrun.io.transforms.program import RowProgram
from mxrun.runtime import random


def make(name: str, **parameters: object) -> Transform:
    return TRANSFORMS.get(name).model_validate(parameters)


def image(channels: int = 3, height: int = 12, width: int = 16) -> np.ndarray:
    words = random.raw(5, "image", channels * height * width)
    return (words % 251 + 1).astype(np.uint8).reshape(channels, height, width)


def rows(
    steps: Pipeline, record: np.ndarray, numbers: list[int], epoch: int = 1, seed: int = 3
) -> np.ndarray:
    """Return the rows of one record under several record numbers."""
    field = "label" if record.ndim == 0 else "data"
    shape, dtype = steps.output(field, record.shape, str(record.dtype))
    scale = 1 / 255 if record.dtype == np.uint8 else None
    dtype = dtype if scale is None else "float32"
    column = LazyField(lambda index: record, 1 << 40, record.shape, str(record.dtype), scale)
    program = RowProgram(steps, field, column, TensorSpec(shape, dtype), seed)
    records = np.array(numbers)
    found = np.full((len(numbers), *shape), np.nan, dtype)
    epochs = np.full(len(numbers), epoch)
    for _, error in program.write(program.read(records), records, epochs, found):
        raise error
    return found


def values_of(record: np.ndarray) -> np.ndarray:
    return record.astype(np.float32) * np.float32(1 / 255)
