"""What the translators of single operators write into: nodes, constants, fresh names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mxrun.base.registry import Registry
from mxrun.base.tensor import Shape
from mxrun.convert.onnx_model import Array, Attribute, OnnxNode
from mxrun.operator.register import AnyProperty


class NotInOnnx(Exception):
    """What is asked of an operator has no form in ONNX that is known here; the text says what."""


@dataclass(eq=False)
class Writer:
    """The nodes and constants of a graph that is being written."""

    nodes: list[OnnxNode] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def constant(self, name: str, array: Array) -> str:
        """Add a constant; its name."""
        self.constants[name] = array
        return name


@dataclass(eq=False)
class OperatorWriter:
    """One operator of the network, on its way into ONNX.

    inputs: ONNX's names of arguments and states, without labels; shapes: theirs; output_shapes: of
    its outputs. free_shapes, free_output_shapes: the same with -1 for sizes that grow with the
    batch, where the batch may have any size.
    """

    writer: Writer
    name: str
    prop: AnyProperty
    inputs: Sequence[str]
    shapes: Sequence[Shape]
    output_shapes: Sequence[Shape]
    free_shapes: Sequence[Shape]
    free_output_shapes: Sequence[Shape]

    def node(self, operator: str, *inputs: str, **attributes: Attribute) -> str:
        """Write a node with one output; the output's name."""
        return self.split(operator, inputs, 1, **attributes)[0]

    def split(
        self, operator: str, inputs: Sequence[str], count: int, **attributes: Attribute
    ) -> list[str]:
        """Write a node with so many outputs; their names."""
        name = f"{self.name}/{operator}{len(self.writer.nodes)}"
        outputs = [f"{name}:{index}" for index in range(count)]
        self.writer.nodes.append(OnnxNode(operator, name, tuple(inputs), outputs, attributes))
        return outputs

    def numbers(self, *values: float) -> str:
        """A float32 constant of rank 1, or 0 for a single number."""
        return self.array(np.array(values[0] if len(values) == 1 else values, np.float32))

    def integers(self, values: Sequence[int]) -> str:
        """An int64 constant of rank 1."""
        return self.array(np.array(values, np.int64))

    def array(self, array: Array) -> str:
        """A constant."""
        return self.writer.constant(f"{self.name}/constant{len(self.writer.constants)}", array)

    def reshape(self, value: str, free_shape: Shape) -> str:
        """The value in another shape, of which one size may be free."""
        if free_shape.count(-1) > 1:
            raise NotInOnnx("the batch in two axes: give --batch")
        return self.node("Reshape", value, self.integers(free_shape))


Translator = Callable[[OperatorWriter], "str | list[str]"]
TRANSLATORS: Registry[Translator] = Registry("operator with a form in ONNX")


def translates(*operators: str) -> Callable[[Translator], Translator]:
    """Register how operators of these names are written; the function returns its outputs."""

    def add(translator: Translator) -> Translator:
        for operator in operators:
            TRANSLATORS.add(operator, translator)
        return translator

    return add
