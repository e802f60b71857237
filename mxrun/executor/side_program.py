"""Small programs over tensors that lie in memory of their own, beside an executor's plan."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mxrun.base.device import CPU
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.bound import BoundRequest, compile_bound
from mxrun.device.interface import Device, DeviceTensor, Mirror
from mxrun.device.registry import device_kind, open_device
from mxrun.executor.executor import Executor
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.phases import EVALUATE
from mxrun.graph.symbol import Symbol
from mxrun.operator.launch import Handle
from mxrun.operator.register import AnyProperty

__all__ = ["BatchTensors", "DeviceTensor", "Mirror", "SideProgram", "host_tensor", "new_tensor"]


class BatchTensors(NamedTuple):
    """Labels and output of a loss for a batch, and the weights of its rows."""

    label: DeviceTensor
    output: DeviceTensor
    weight: DeviceTensor


class SideProgram:
    """Operator on given tensors; its outputs, and what it needs besides, have memory of their own.

    outputs: the results, valid until the next run. Nothing is allocated after construction.
    """

    def __init__(self, prop: AnyProperty, inputs: Mapping[str, DeviceTensor]) -> None:
        """`inputs`: on one device, by any names, in the operator's order."""
        device = next(iter(inputs.values())).device
        node = Node(prop.type_string, prop, tuple(NodeEntry(Node(name)) for name in inputs))
        heads = [NodeEntry(node, index) for index in range(prop.num_visible_outputs)]
        specs = {name: tensor.spec for name, tensor in inputs.items()}
        bound = compile_bound(BoundRequest(Symbol(heads), specs, (), {}, device.description))
        plan = bound.plan
        # The outputs and the temporary space, which follow the inputs in the plan.
        begin = min(plan.offset(name) for name in bound.outputs)
        memory = device.allocate(plan.planned_bytes - begin)
        handles = {name: tensor.handle for name, tensor in inputs.items()}
        handles |= {name: Handle(memory, plan.offset(name) - begin) for name in bound.outputs}
        place = plan.place(handles, Handle(memory, plan.pinned_bytes - begin))
        executor = Executor(plan, device, place=place)
        self.run = executor.program(EVALUATE).run
        self.outputs = tuple(map(executor.tensor, bound.outputs))
        self._inputs = inputs


def new_tensor(device: Device, spec: TensorSpec) -> DeviceTensor:
    """Return a tensor of zeros in memory of its own."""
    return device.tensor(Handle(device.allocate(spec.nbytes), 0), spec)


def host_tensor(array: npt.NDArray[np.generic]) -> DeviceTensor:
    """Return a contiguous array of the process as a tensor of the CPU with one thread."""
    device = _one_thread()
    return device.tensor(Handle(device.adopt(array), 0), TensorSpec(array.shape, array.dtype.name))


@cache
def _one_thread() -> Device:
    return open_device(device_kind(CPU).describe(0, 1), CPU)
