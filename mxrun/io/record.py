"""What a transform is, and the transforms by name: steps from a record to the row of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from mxrun.base.params import Parameters
from mxrun.base.tensor import TensorSpec
from mxrun.io.declared import DeclaredRegistry

Record = NDArray[Any]
# The shape of a record; None where it differs from record to record.
RecordShape = tuple[int | None, ...]
# Uniform float64 in [0, 1) of a shape; every call begins anew with the same numbers.
Draw = Callable[[tuple[int, ...]], NDArray[np.float64]]


class Scale(Parameters):
    """The factors that make values of bytes, for an input whose records are bytes."""

    bytes: float = Field(description="Of the data set's bytes, and of arrays of bytes.")
    images: float = Field(description="Of an image's bytes, of which 255 is white.")


Side = Annotated[int, Field(ge=1, le=1 << 15)]
Sides = tuple[Side, Side]


class Transform(Parameters):
    """One transform with its parameters; the same record and draws give the same bits.

    `works_on_values`: whether it wants float32 with the data set's scale applied (bytes in 0..1)
    instead of the record as it is stored. `wants_unit_values`: whether these must be in 0..1, and
    `moves_values`: whether they need not be any longer behind it.
    """

    # Most runs transform nothing: a model is built when it is first used.
    model_config = ConfigDict(defer_build=True)
    works_on_values: ClassVar[bool] = False
    wants_unit_values: ClassVar[bool] = False
    moves_values: ClassVar[bool] = False
    name: ClassVar[str] = ""

    @property
    def field(self) -> str:
        """The field whose records it takes."""
        return "data"

    @property
    def missing(self) -> str:
        """What to give where the parameters leave every record as it is; else empty."""
        return ""

    def evaluation(self) -> tuple[Transform, ...]:
        """What takes its place in evaluation, where nothing is random: itself if nothing is."""
        return (self,)

    def output(self, shape: RecordShape) -> RecordShape:
        """The shape it gives for a record of `shape`.

        Raises UserError, without a place, for a shape that it cannot take.
        """
        return shape

    def source(self, spec: TensorSpec) -> TensorSpec:
        """The record that gives a row of `spec`, for data sets that fit what they are asked for."""
        return spec

    def apply(self, record: Record, draw: Draw) -> Record:
        """The transformed record; the one given is left alone. Raises UserError as `output`."""
        raise NotImplementedError


TRANSFORMS: DeclaredRegistry[type[Transform]] = DeclaredRegistry("transform")
for _module, _names in {
    "geometry": (
        "resize",
        "center_crop",
        "random_crop",
        "random_resized_crop",
        "flip",
        "pad_crop",
        "cutout",
    ),
    "color": ("normalize", "color_jitter"),
    "label": ("one_hot",),
}.items():
    for _name in _names:
        TRANSFORMS.declare(_name, f"mxrun.io.{_module}")

T = TypeVar("T", bound=Transform)


def register(name: str) -> Callable[[type[T]], type[T]]:
    """Decorator that registers the transform `name`."""

    def add(transform: type[T]) -> type[T]:
        transform.name = name
        TRANSFORMS.add(name, transform)
        return transform

    return add


def sides(size: int | Sides) -> Sides:
    """A size as [height, width]: one number stands for both."""
    return (size, size) if isinstance(size, int) else size
