"""Reshape, expand_dims and squeeze: the same elements in row-major order under another shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from mxrun.base.params import LARGEST_INT32, Int32, Parameters
from mxrun.base.tensor import PartialShape
from mxrun.operator.property import PartialInference, PartialShapes
from mxrun.operator.register import register
from mxrun.operator.shape import (
    Dimensions,
    ShapeContradiction,
    product,
    require_complete,
    show,
    unify,
    unify_product,
)
from mxrun.ops.view import ViewProperty

COPY, INFER, REST, MERGE, SPLIT = 0, -1, -2, -3, -4

Code = Annotated[int, Field(ge=SPLIT, le=LARGEST_INT32)]


class ReshapeParameters(Parameters):
    """Parameters of Reshape (MXNet's)."""

    shape: tuple[Code, ...] = Field(
        default=(),
        description="Shape of the output. 0 copies data's axis, -1 is inferred from the number "
        "of elements, -2 copies all remaining axes, -3 merges two axes, -4 splits an axis into "
        "the next two numbers, one of which may be -1.",
        examples=[(0, -1)],
    )
    reverse: bool = Field(default=False, description="Match shape with data's axes from the right.")
    target_shape: tuple[Annotated[Int32, Field(ge=0)], ...] = Field(
        default=(),
        description="Old form of shape: one 0 is inferred from the element count; default: none.",
    )
    keep_highest: bool = Field(
        default=False, description="With target_shape: the first axis has data's size."
    )

    @model_validator(mode="after")
    def _consistent(self) -> ReshapeParameters:
        if not self.shape and not self.target_shape:
            raise ValueError("Reshape needs a shape")
        codes = iter(self.codes())
        inferred = 0
        for code in codes:
            inferred += code == INFER
            if code == SPLIT:
                sizes = (next(codes, COPY), next(codes, COPY))
                if min(sizes) < INFER or 0 in sizes or sizes == (INFER, INFER):
                    raise ValueError("-4 needs two sizes after it, of which one may be -1")
        if inferred > 1:
            raise ValueError("only one axis can be inferred from the number of elements")
        return self

    def codes(self) -> tuple[int, ...]:
        """Return the shape codes in the order in which they match data's axes.

        target_shape is converted to shape codes.
        """
        if self.shape:
            return self.shape[::-1] if self.reverse else self.shape
        codes = tuple(size or INFER for size in self.target_shape)
        return (COPY, *codes[1:]) if self.keep_highest else codes


@register("Reshape", "reshape", foreign={"Reshape: {shape: [0, -1]}": "view unflatten"})
class ReshapeProperty(ViewProperty[ReshapeParameters]):
    """output = data in row-major order with the shape `shape`, which has as many elements.

    Backward reads only the output's gradient.
    """

    type_string = "Reshape"
    parameter_type = ReshapeParameters

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer the output from the codes; backward, one unknown axis of data from the product."""
        data, output = inputs[0], outputs[0]
        rule = f"shape {list(self.parameters.shape or self.parameters.target_shape)} of data"
        reshaped = self._reshaped(data, rule)
        if reshaped is not None and data is not None:
            reshaped, _ = unify_product("output", reshaped, product(data), rule)
        output = unify("output", output, reshaped, f"{rule} {show(data)}")
        if output is not None and data is not None:
            data, _ = unify_product("data", data, product(output), "output's elements")
        return PartialInference([data], [output], [])

    def _reshaped(self, data: PartialShape, rule: str) -> PartialShape:
        """Apply the codes to data's axes as far as these are known."""
        reverse = self.parameters.reverse and bool(self.parameters.shape)
        axes = _Axes(data[::-1] if reverse and data is not None else data, rule)
        codes = iter(self.parameters.codes())
        output: list[int | None] = []
        for code in codes:
            if code == REST and data is None:
                return None
            if code > 0 or code == INFER:
                axes.skip()
                output.append(code if code > 0 else None)
            elif code == COPY:
                output.append(axes.take())
            elif code == MERGE:
                output.append(product((axes.take(), axes.take())))
            elif code == REST:
                output += axes.rest()
            else:
                output += _split(axes.take(), codes)
        return tuple(output[::-1] if reverse else output)


class _Axes:
    """Iterator over data's axes, which are all unknown if data's rank is unknown."""

    def __init__(self, data: PartialShape, rule: str) -> None:
        self.data, self.rule, self.position = data, rule, 0

    def skip(self) -> None:
        """Skip one axis, if any is left."""
        self.position += 1

    def take(self) -> int | None:
        """Return the next axis; raises ShapeContradiction if none is left."""
        self.position += 1
        if self.data is None:
            return None
        if self.position > len(self.data):
            raise ShapeContradiction(
                "data", show(self.data), f"rank {self.position} or more", self.rule
            )
        return self.data[self.position - 1]

    def rest(self) -> Dimensions:
        """Return all remaining axes."""
        rest = (self.data or ())[self.position :]
        self.position += len(rest)
        return rest


def _split(size: int | None, codes: Iterator[int]) -> Dimensions:
    """Return the two sizes into which the next two codes split an axis."""
    parts = tuple(None if code == INFER else code for code in (next(codes), next(codes)))
    return unify_product("data", parts, size, "splitting an axis")[0]


class ExpandDimsParameters(Parameters):
    """Parameters of expand_dims (MXNet's)."""

    axis: Int32 = Field(
        description="Position of the new axis in the output; negative from the end.", examples=[1]
    )


@register("expand_dims", foreign={"expand_dims: {axis: 1}": "unsqueeze"})
class ExpandDimsProperty(ViewProperty[ExpandDimsParameters]):
    """output = data with an inserted axis of size 1. Backward reads only the output's gradient."""

    type_string = "expand_dims"
    parameter_type = ExpandDimsParameters

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer in both directions once either rank is known."""
        data, output = inputs[0], outputs[0]
        rank = len(data) + 1 if data is not None else len(output) if output is not None else None
        if rank is None:
            return PartialInference([None], [None], [])
        axis = _position(self.parameters.axis, rank, data, "output")
        if output is not None and len(output) == rank:
            data = unify("data", data, (*output[:axis], *output[axis + 1 :]), "output")
        data = data or ()
        output = unify("output", output, (*data[:axis], 1, *data[axis:]), "data and axis")
        return PartialInference([data], [output], [])


class SqueezeParameters(Parameters):
    """Parameters of squeeze (MXNet's)."""

    axis: tuple[Int32, ...] | None = Field(
        default=None,
        description="Axes of size 1 to remove, negative from the end; default: all.",
    )

    @field_validator("axis", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, int) else value


@register("squeeze")
class SqueezeProperty(ViewProperty[SqueezeParameters]):
    """output = data without its axes of size 1; at least one axis remains.

    Backward reads only the output's gradient.
    """

    type_string = "squeeze"
    parameter_type = SqueezeParameters

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer forward once the axes are known; backward, one unknown axis from the product."""
        data, output = inputs[0], outputs[0]
        if data is not None:
            removed = self._removed(data)
            if removed is not None:
                ones = tuple(1 if axis in removed else None for axis in range(len(data)))
                data = unify("data", data, ones, "squeezed axes have size 1")
                remaining = [size for axis, size in enumerate(data) if axis not in removed]
                output = unify("output", output, tuple(remaining or [1]), "data and axis")
            if output is not None:
                data, _ = unify_product("data", data, product(output), "output's elements")
        return PartialInference([data], [output], [])

    def _removed(self, data: Dimensions) -> set[int] | None:
        """Return the axes to remove, or None if they depend on unknown sizes."""
        if self.parameters.axis is not None:
            return {_position(axis, len(data), data, "data") for axis in self.parameters.axis}
        if None in data:
            return None
        return {position for position, size in enumerate(require_complete(data)) if size == 1}


def _position(axis: int, rank: int, data: PartialShape, owner: str) -> int:
    """Return `axis` counted from the front; raises ShapeContradiction if it exceeds the rank."""
    if not -rank <= axis < rank:
        raise ShapeContradiction("data", show(data), f"axis {axis} inside", f"{owner}'s axes")
    return axis % rank
