"""Base class of transforms, which turn records into rows of a batch, and their registry."""

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
# Shape of a record, with None for dimensions that differ between records.
RecordShape = tuple[int | None, ...]
# Function from a shape to uniform float64 in [0, 1); every call starts the same stream anew.
Draw = Callable[[tuple[int, ...]], NDArray[np.float64]]


class Scale(Parameters):
    """Factors that convert bytes to values, for an input whose records are bytes."""

    bytes: float = Field(description="Factor of the data set's bytes, and of arrays of bytes.")
    images: float = Field(description="Factor of an image's bytes, in which 255 is white.")


Side = Annotated[int, Field(ge=1, le=1 << 15)]
Sides = tuple[Side, Side]


class Transform(Parameters):
    """Transform with its parameters; the same record and draws give the same bits.

    `works_on_values`: whether it takes float32 with the data set's scale applied (bytes in 0..1)
    instead of the record as stored. `requires_unit_values`: whether its input must be in 0..1.
    `leaves_unit_range`: whether its output may be outside of 0..1.
    """

    # Most runs have no transforms: build a pydantic model only on first use.
    model_config = ConfigDict(defer_build=True)
    works_on_values: ClassVar[bool] = False
    requires_unit_values: ClassVar[bool] = False
    leaves_unit_range: ClassVar[bool] = False
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
        """Return the transformed record, leaving the given one unchanged.

        Raises UserError as `output` does.
        """
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
        TRANSFORMS.declare(_name, f"mxrun.io.transforms.{_module}")

T = TypeVar("T", bound=Transform)


def register(name: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator that registers the transform `name`."""

    def add(transform: type[T]) -> type[T]:
        transform.name = name
        TRANSFORMS.add(name, transform)
        return transform

    return add


def sides(size: int | Sides) -> Sides:
    """Return a size as [height, width]; a single number is used for both."""
    return (size, size) if isinstance(size, int) else size
