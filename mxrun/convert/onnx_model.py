"""ONNX model, graph, nodes and tensors, and their encoding.

The numbers of fields, element types and attribute types are those of onnx.proto
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto). The encoding is implemented here, because
the onnx package would be a large dependency for a few hundred bytes of structure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.convert.protobuf import integer, integers, message, real, text, texts

# Opset 17 came with ONNX 1.12 in 2022; all runtimes of recent years read it.
OPSET = 17
_IR_VERSION = 8

# TensorProto.DataType.
ELEMENT_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
}
# AttributeProto.AttributeType.
_FLOAT, _INT, _STRING, _INTS, _STRINGS = 1, 2, 3, 7, 8

Array = npt.NDArray[Any]
Attribute = int | float | str | Sequence[int] | tuple[str, ...]


@dataclass(frozen=True)
class OnnxNode:
    """One ONNX operator with named inputs and outputs; an empty name omits an optional input."""

    operator: str
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Attribute]

    def encoded(self) -> bytes:
        """Return the node as a NodeProto."""
        attributes = (message(5, _attribute(n, v)) for n, v in self.attributes.items())
        names = texts(1, self.inputs) + texts(2, self.outputs)
        return b"".join((names, text(3, self.name), text(4, self.operator), *attributes))


@dataclass(frozen=True)
class ValueInfo:
    """Input or output of the graph; a string in place of a size means any size."""

    name: str
    dtype: str
    shape: Sequence[int | str]

    def encoded(self) -> bytes:
        """Return the value as a ValueInfoProto."""
        sizes = (
            message(1, text(2, s) if isinstance(s, str) else integer(1, s)) for s in self.shape
        )
        tensor = integer(1, ELEMENT_TYPES[self.dtype]) + message(2, b"".join(sizes))
        return text(1, self.name) + message(2, message(1, tensor))


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """Graph with its constants; metadata: strings that runtimes make available to programs."""

    name: str
    nodes: Sequence[OnnxNode]
    constants: Mapping[str, Array]
    inputs: Sequence[ValueInfo]
    outputs: Sequence[ValueInfo]
    producer_version: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Return the model as a ModelProto."""
        parts = [message(1, node.encoded()) for node in self.nodes]
        parts.append(text(2, self.name))
        parts += (message(5, _tensor(name, array)) for name, array in self.constants.items())
        parts += (message(11, value.encoded()) for value in self.inputs)
        parts += (message(12, value.encoded()) for value in self.outputs)
        header = integer(1, _IR_VERSION) + text(2, "mxrun") + text(3, self.producer_version)
        graph, opset = message(7, b"".join(parts)), message(8, integer(2, OPSET))
        properties = (
            message(14, text(1, key) + text(2, value)) for key, value in self.metadata.items()
        )
        return b"".join((header, graph, opset, *properties))


def _tensor(name: str, array: Array) -> bytes:
    """Return a TensorProto; elements are little-endian in row-major order."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    kind = integer(2, ELEMENT_TYPES[array.dtype.name])
    return integers(1, array.shape) + kind + text(8, name) + message(9, plain.tobytes())


def _attribute(name: str, value: Attribute) -> bytes:
    """Return an AttributeProto."""
    if isinstance(value, int):
        content = integer(3, value) + integer(20, _INT)
    elif isinstance(value, float):
        content = real(2, value) + integer(20, _FLOAT)
    elif isinstance(value, str):
        content = text(4, value) + integer(20, _STRING)
    elif value and isinstance(value[0], str):
        content = b"".join(text(9, str(each)) for each in value) + integer(20, _STRINGS)
    else:
        content = integers(8, [int(each) for each in value]) + integer(20, _INTS)
    return text(1, name) + content
