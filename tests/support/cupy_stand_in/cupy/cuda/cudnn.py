"""The calls of cuDNN that need a card: the library itself makes plans, NumPy computes them.

An operation is read from the text of its plan, in which cuDNN says what it was told: sizes, strides
and types. Scratch space holds NaN before and after.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from cudnn_arithmetic import compute, extent

from cupy.cuda.card import CARD, ILLEGAL_ADDRESS
from cupy.cuda.stream import BY_POINTER
from mxrun.device.cuda.cudnn.constants import Attribute, AttributeType
from mxrun.device.cuda.cudnn.graph import (
    DATA_TYPES,
    ConvolutionDirection,
    ConvolutionOperation,
    GraphTensor,
    MatrixMultiplication,
    Operation,
    OperationGraph,
    Pointwise,
    Role,
)
from mxrun.device.cuda.recorded_cards import recorded_card

_SUCCESS, _ALLOCATION_FAILED, _EXECUTION_FAILED = 0, 4004, 5000
_RECORDED = {
    Attribute.EXECUTION_PLAN_JSON_REPRESENTATION.number,
    Attribute.VARIANT_PACK_UNIQUE_IDS.number,
    Attribute.VARIANT_PACK_DATA_POINTERS.number,
    Attribute.VARIANT_PACK_WORKSPACE.number,
}
_CONVOLUTION = {
    "FORWARD": (ConvolutionDirection.WINDOWS, ("X", "W", "Y")),
    "BACKWARD_DATA": (ConvolutionDirection.IMAGES, ("dX", "W", "dY")),
    "BACKWARD_FILTER": (ConvolutionDirection.WEIGHT, ("X", "dW", "dY")),
}


class Calls:
    """Functions in place of those of a loaded library."""

    def __init__(self, functions: Any) -> None:
        self._set = functions.cudnnBackendSetAttribute
        self._get = functions.cudnnBackendGetAttribute
        self._streams: dict[int, int] = {}
        # By descriptor and attribute.
        self._values: dict[tuple[int, int], Any] = {}
        functions.cudnnBackendSetAttribute = self.set_attribute
        functions.cudnnCreate, functions.cudnnSetStream = self.create, self.set_stream
        functions.cudnnBackendExecute = self.execute

    def set_attribute(self, handle: int, name: int, kind: int, count: int, elements: Any) -> int:
        """Set an attribute; the properties of a card are those of the recorded one."""
        if name == Attribute.DEVICEPROP_DEVICE_ID.number:
            CARD.require()
            text = recorded_card("h100").properties.encode() + b"\0"
            attribute = Attribute.DEVICEPROP_JSON_REPRESENTATION
            name, kind, count = attribute.number, AttributeType.CHAR, len(text)
            elements = ctypes.create_string_buffer(text, len(text))
        if name in _RECORDED:
            self._values[handle, name] = elements[:count]
        return int(self._set(handle, name, kind, count, elements))

    def create(self, result: Any) -> int:
        """Create a handle."""
        CARD.require()
        CARD.require_current()
        CARD.forbid_in_capture()
        if self._streams and "cudnnCreate" in CARD.settings.uncapturable:
            return _ALLOCATION_FAILED
        result._obj.value = len(self._streams) + 1
        self._streams[result._obj.value] = 0
        return _SUCCESS

    def set_stream(self, handle: Any, stream: int) -> int:
        """Set the stream of a handle."""
        self._streams[handle.value] = stream
        return _SUCCESS

    def execute(self, handle: int, plan: int, pack: int) -> int:
        """Delay a plan's operations, or capture them."""
        CARD.require()
        CARD.require_current()
        stream = BY_POINTER[self._streams[handle]]
        refusing = CARD.settings.fails if stream.capture is None else CARD.settings.uncapturable
        if "cudnnBackendExecute" in refusing:
            return _EXECUTION_FAILED
        graph = graph_of(self._of(plan, Attribute.EXECUTION_PLAN_JSON_REPRESENTATION))
        roles = map(Role, self._of(pack, Attribute.VARIANT_PACK_UNIQUE_IDS))
        addresses = self._of(pack, Attribute.VARIANT_PACK_DATA_POINTERS)
        places = dict(zip(roles, map(int, addresses), strict=True))
        (workspace,) = self._of(pack, Attribute.VARIANT_PACK_WORKSPACE)
        nbytes = self._workspace_bytes(plan)
        tensors = {role: each for role, each in graph.tensors.items() if not each.is_virtual}
        assert places.keys() == tensors.keys()
        assert all(places[role] % each.alignment == 0 for role, each in tensors.items())
        assert (workspace or 0) % 256 == 0
        ranges = [(places[role], extent(each)) for role, each in tensors.items()]
        ranges += [(workspace or 0, nbytes)] if nbytes else []
        fails = "cudnn" in CARD.settings.fails

        def run() -> None:
            CARD.count("plan")
            if (fails and CARD.is_over()) or not all(CARD.has(*each) for each in ranges):
                CARD.fail(ILLEGAL_ADDRESS)
                return
            with CARD.working():
                if nbytes:
                    ctypes.memset(workspace, 0xFF, nbytes)
                compute(graph, places)

        stream.submit(run)
        return _SUCCESS

    def _of(self, handle: int, attribute: Attribute) -> Any:
        return self._values[handle, attribute.number]

    def _workspace_bytes(self, plan: int) -> int:
        found, count = ctypes.c_int64(), ctypes.c_int64()
        attribute = Attribute.EXECUTION_PLAN_WORKSPACE_SIZE
        arguments = (attribute.number, attribute.type, 1, ctypes.byref(count), ctypes.byref(found))
        assert self._get(plan, *arguments) == _SUCCESS
        return found.value


@cache
def graph_of(text: bytes) -> OperationGraph:
    """Return the graph of a plan's text."""
    found = json.loads(text.rstrip(b"\0"))["operationGraph"]
    types = {f"CUDNN_DATA_{kind.name}": dtype for dtype, kind in DATA_TYPES.items()}
    tensors = {
        each["name"]: GraphTensor(
            Role(int(each["name"])),
            types[each["dataType"]],
            tuple(each["dim"]),
            tuple(each["stride"]),
            each["ptrAlignment"],
            each["isVirtual"],
        )
        for each in found["tensors"]
    }
    return OperationGraph(tuple(_operations(found["nodes"], tensors)))


def _operations(
    nodes: list[dict[str, Any]], tensors: dict[str, GraphTensor]
) -> Iterator[Operation]:
    for node in nodes:
        name = node["operation"].removesuffix("_DESCRIPTOR")
        kind = name.removeprefix("CUDNN_BACKEND_OPERATION_")
        if kind == "MATMUL":
            yield MatrixMultiplication(*(tensors[node[f"mat{name}"]] for name in "ABC"))
        elif kind == "POINTWISE":
            addend = tensors[node["B"]] if node["pointwiseMode"] == "CUDNN_POINTWISE_ADD" else None
            yield Pointwise(tensors[node["X"]], addend, tensors[node["Y"]])
        else:
            direction, names = _CONVOLUTION[kind.removeprefix("CONVOLUTION_")]
            assert node["alpha"] == 1
            yield ConvolutionOperation(
                direction,
                *(tensors[node[name]] for name in names),
                stride=tuple(node["stride"]),
                dilation=tuple(node["dilation"]),
                pad=tuple(node["pad"]),
                is_added=bool(node["beta"]),
            )
