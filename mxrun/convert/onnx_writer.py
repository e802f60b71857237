"""Writer of an ONNX graph for the translators of single operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from mxrun.base.dataclass import dataclass
from mxrun.base.registry import Registry
from mxrun.base.tensor import Shape
from mxrun.convert.onnx_model import Array, Attribute, OnnxNode
from mxrun.operator.register import AnyProperty


class NotInOnnx(Exception):
    """An operator that cannot be converted to ONNX; the text gives the reason."""


@dataclass(eq=False)
class Writer:
    """Nodes and constants of the graph written so far."""

    nodes: list[OnnxNode] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def constant(self, name: str, array: Array) -> str:
        """Add a constant and return its name."""
        self.constants[name] = array
        return name


@dataclass(eq=False)
class OperatorWriter:
    """One operator to translate, with methods that write ONNX nodes for it.

    inputs: ONNX names of arguments and states, without labels; shapes: their shapes. output_shapes:
    shapes of the outputs. free_shapes, free_output_shapes: the same with -1 for sizes that depend
    on the batch size, if that is variable.
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
        """Write a node with one output and return the output's name."""
        return self.split(operator, inputs, 1, **attributes)[0]

    def split(
        self, operator: str, inputs: Sequence[str], count: int, **attributes: Attribute
    ) -> list[str]:
        """Write a node with `count` outputs and return their names."""
        name = f"{self.name}/{operator}{len(self.writer.nodes)}"
        outputs = [f"{name}:{index}" for index in range(count)]
        self.writer.nodes.append(OnnxNode(operator, name, tuple(inputs), outputs, attributes))
        return outputs

    def numbers(self, *values: float) -> str:
        """Add a float32 constant of rank 1, or of rank 0 for a single number."""
        return self.array(np.array(values[0] if len(values) == 1 else values, np.float32))

    def integers(self, values: Sequence[int]) -> str:
        """Add an int64 constant of rank 1."""
        return self.array(np.array(values, np.int64))

    def array(self, array: Array) -> str:
        """Add a constant."""
        return self.writer.constant(f"{self.name}/constant{len(self.writer.constants)}", array)

    def reshape(self, value: str, free_shape: Shape) -> str:
        """Write a Reshape to a shape of which one size may be -1."""
        if free_shape.count(-1) > 1:
            raise NotInOnnx("the batch size occurs in two axes: give --batch")
        return self.node("Reshape", value, self.integers(free_shape))


Translator = Callable[[OperatorWriter], "str | list[str]"]
TRANSLATORS: Registry[Translator] = Registry("ONNX translation of operator")


def translates(*operators: str) -> Callable[[Translator], Translator]:
    """Register the decorated translator for operators of these names.

    A translator writes the nodes and returns the names of the outputs.
    """

    def add(translator: Translator) -> Translator:
        for operator in operators:
            TRANSLATORS.add(operator, translator)
        return translator

    return add
