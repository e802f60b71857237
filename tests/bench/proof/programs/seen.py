"""Plugin: an operator that appends the SHA-256 of everything it reads to a file, and a transform.

It imports what plugins import. If a change moves that, this file must try both places.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from mxrun.base.params import Parameters
from mxrun.io.transforms.base import Transform
from mxrun.io.transforms.base import register as register_transform
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
    same_shape,
)
from mxrun.operator.register import register

FILE = Path("seen.txt")


class SeenParameters(Parameters):
    """Types of the inputs."""

    types: str = Field(default="float32", description="One for each input, between blanks.")


@register("seen")
class SeenProperty(OperatorProperty[SeenParameters]):
    """output = input 0. Appends the SHA-256 of all inputs and of the rows' weights to a file."""

    type_string = "seen"
    parameter_type = SeenParameters
    reads_only_data = True
    unchecked: ClassVar[str] = "It writes a file."

    def list_arguments(self) -> tuple[str, ...]:
        """Return a name for each input, and the weights."""
        inputs = [f"input{index}" for index in range(len(self.parameters.types.split()))]
        return (*inputs, "sample_weight")

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Input 0 and the output have one shape."""
        first, output = same_shape(("input0", "output"), [inputs[0], outputs[0]], "seen")
        return PartialInference([first, *inputs[1:]], [output], [])

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """Return the types that the parameter gives."""
        types = self.parameters.types.split()
        return [*types, "float32"], [types[0]]

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """The gradient of input 0 is that of the output."""
        is_float = self.parameters.types.startswith("float")
        first = GradientKind.COMPUTES if is_float else GradientKind.ZERO
        return (first, *(GradientKind.ZERO,) * len(self.parameters.types.split()))

    def declare_backward_dependency(
        self, out_grad: Sequence[Any], in_data: Sequence[Any], out_data: Sequence[Any]
    ) -> list[Any]:
        """Return the output's gradient."""
        return list(out_grad)

    def create_operator(self) -> Operator:
        """Create the body."""
        return Seen()


class Seen(Operator):
    """A copy, and a line in the file."""

    def forward(self, call: ForwardCall) -> None:
        """Write a line: training or evaluation, and a digest for each input."""
        digests = [_digest(array) for array in call.inputs]
        phase = "train" if call.is_train else "eval"
        with FILE.open("a") as file:
            print(phase, *digests, file=file)
        call.store(output=next(iter(call.inputs)))

    def backward(self, call: BackwardCall) -> None:
        """Pass the gradient on."""
        call.store(input0=next(iter(call.output_gradients)))


@register_transform("noisy")
class Noisy(Transform):
    """data with a uniform number added to its first element."""

    def apply(self, record: Any, draw: Any) -> Any:
        """Return float32 values."""
        values = record.astype(np.float32)
        values.reshape(-1)[0] += draw((1,))[0]
        return values


def _digest(array: Any) -> str:
    content = np.ascontiguousarray(array)
    head = f"{content.dtype}{content.shape}".encode()
    return hashlib.sha256(head + content.tobytes()).hexdigest()[:16]
