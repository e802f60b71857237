"""Base class of transforms, which turn records into rows of a batch, and their registry."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mxrun.base.errors import UserError
from mxrun.base.params import Parameters
from mxrun.base.registry import Registry
from mxrun.base.tensor import TensorSpec
from mxrun.io.transforms.draws import Draw
from mxrun.io.transforms.windows import ImageWindows, Int64

Record = NDArray[Any]
# Shape of a record, with None for dimensions that differ between records.
RecordShape = tuple[int | None, ...]
Values = NDArray[np.float32]
# Uniform numbers in [0, 1) of a chunk of records, float64 [n, draws].
Uniform = NDArray[np.float64]


Side = Annotated[int, Field(ge=1, le=1 << 15)]
Sides = tuple[Side, Side]


class Transform(Parameters):
    """Transform with its parameters; the same record and draws give the same bits.

    One of a plugin gives `apply`, which is called once per record. The classes below are of those
    that are applied to a chunk of records at once.

    `works_on_values`: whether it takes float32 with the data set's scale applied (bytes in 0..1)
    instead of the record as stored. `requires_unit_values`: whether its input must be in 0..1.
    `leaves_unit_range`: whether its output may be outside of 0..1. `takes_boxes`: whether it can be
    applied to images whose labels are boxes.
    """

    works_on_values: ClassVar[bool] = False
    requires_unit_values: ClassVar[bool] = False
    leaves_unit_range: ClassVar[bool] = False
    takes_boxes: ClassVar[bool] = True
    name: ClassVar[str] = ""

    @property
    def field(self) -> str:
        """Name of the field that it transforms."""
        return "data"

    @property
    def required_change(self) -> str:
        """Expected parameters if the given ones leave every record unchanged, else empty."""
        return ""

    def evaluation(self) -> tuple[Transform, ...]:
        """Return the deterministic transforms that replace it in evaluation; by default itself."""
        return (self,)

    def output(self, shape: RecordShape) -> RecordShape:
        """Return the shape of the result for a record of `shape`.

        Raises UserError, without a place, for a shape that is not supported.
        """
        return shape

    def source(self, spec: TensorSpec) -> TensorSpec:
        """Return the spec of the record that yields a row of `spec`.

        Synthetic data sets and formats that convert their records need it.
        """
        return spec

    def apply(self, record: Record, draw: Draw) -> Record:
        """Return the transformed record, which may be the given one, changed in place.

        Whole numbers are scaled afterwards if the data set's are; floats are values as they are.
        Raises UserError as `output` does.
        """
        raise NotImplementedError


class WindowTransform(Transform):
    """Geometric transform of images, which changes their windows; see `windows`."""

    # Uniform numbers that it takes for each record.
    draws: ClassVar[int] = 0
    # Whether it resamples, and whether its results may reach beyond the image.
    resamples: ClassVar[bool] = False
    pads: ClassVar[bool] = False

    @abstractmethod
    def move(self, windows: ImageWindows, uniform: Uniform) -> None:
        """Change the windows of a chunk of images."""

    def unfit(self, heights: Int64, widths: Int64) -> NDArray[np.bool_]:
        """Return which images, by their sizes [n], are of a shape that `output` refuses."""
        return np.zeros(len(heights), np.bool_)


class ValueTransform(Transform):
    """Transform that changes float32 values and keeps the shape of a record."""

    works_on_values: ClassVar[bool] = True
    # Uniform numbers that it takes for each record.
    draws: ClassVar[int] = 0

    @abstractmethod
    def change(self, values: Values, uniform: Uniform) -> None:
        """Change the values of a chunk of records, float32 [n, ...], in place."""


class ChunkTransform(Transform):
    """Transform of a chunk of records of one shape at once, without random numbers."""

    @abstractmethod
    def convert(self, records: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of records [n, ...]; those that are unfit may have any content."""

    def unfit(self, records: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which records `refusal` refuses, [n]."""
        return np.zeros(len(records), np.bool_)

    def refusal(self, record: Record) -> UserError:
        """Return the error of a record that is unfit, without a place."""
        raise NotImplementedError


class BatchTransform(Transform):
    """Transform of complete batches: of data and labels, after the transforms of records.

    In evaluation it is left out.
    """

    takes_boxes: ClassVar[bool] = False
    # Uniform numbers that it takes for a batch.
    draws: ClassVar[int] = 0

    @property
    def field(self) -> str:
        """Empty: it transforms all fields."""
        return ""

    def evaluation(self) -> tuple[Transform, ...]:
        """Return no transform."""
        return ()

    def check(self, field: str, shape: RecordShape, dtype: str) -> None:
        """Raise UserError, without a place, for rows of a field that are not supported."""
        return

    @abstractmethod
    def mix(self, rows: Mapping[str, NDArray[Any]], valid: int, uniform: Uniform) -> None:
        """Change the first `valid` rows of a batch, by field, in place.

        uniform: `draws` numbers in [0, 1).
        """


TRANSFORMS: Registry[type[Transform]] = Registry("transform")


def loop_shape(values: Values) -> dict[str, Any]:
    """Return the arguments of pixel loops for a chunk of records [n, channels, ...] of any rank."""
    shape = values.shape
    rest = (math.prod(shape[2:-1]), shape[-1]) if len(shape) > 2 else (1, 1)
    channels = shape[1] if len(shape) > 1 else 1
    names = ("rows", "channels", "height", "width")
    return {**dict(zip(names, (shape[0], channels, *rest), strict=True)), "values": values}


T = TypeVar("T", bound=Transform)


def register(name: str, foreign: Mapping[str, str] | None = None) -> Callable[[type[T]], type[T]]:
    """Return a decorator that registers the transform `name`.

    foreign: by its form in a config, names of other frameworks, separated by spaces.
    """

    def add(transform: type[T]) -> type[T]:
        transform.name = name
        TRANSFORMS.add(name, transform, foreign=foreign)
        return transform

    return add


def sides(size: int | Sides) -> Sides:
    """Return a size as [height, width]; a single number is used for both."""
    return (size, size) if isinstance(size, int) else size
