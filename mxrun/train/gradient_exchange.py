"""Sums of a bucket's gradients over all contexts, written back to each of them."""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.device import DeviceDescription
from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.device.interface import Program, ProgramStep
from mxrun.executor.executor import Executor
from mxrun.operator.kernel import ForwardRequest, Handles, Kernel, OpReqType
from mxrun.operator.launch import Handle
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import create, implementations
from mxrun.planner.gradient_buckets import GradientBucket

_SUM = "add_n"


def exchange_program(bucket: GradientBucket, executors: Sequence[Executor]) -> Program:
    """Return the program that replaces a bucket in every arena by the sum of all of them.

    Gradients are added in the order of the contexts, ((g0 + g1) + g2) + ..., whatever ran first, so
    that the sum has the same bits in every run. The program needs one thread, and memory that the
    host can view; raises InternalError for another device.
    """
    first = executors[0].device
    if not first.has_host_memory:
        raise InternalError(f"gradients on {first.description.family} cannot be summed on the host")
    spec = TensorSpec((bucket.elements,))
    handles = [Handle(executor.memory, bucket.begin) for executor in executors]
    total, *others = handles
    device = type(first)(first.describe(first.description.index, 1))
    add = _summation(device.description, spec, len(handles))
    copy = _summation(device.description, spec, 1)
    launches = add.bind(Handles(tuple(handles), (total,)))
    for other in others:
        launches = (*launches, *copy.bind(Handles((total,), (other,))))
    return device.bind([ProgramStep(_SUM, tuple(launches))])


def _summation(device: DeviceDescription, spec: TensorSpec, count: int) -> Kernel:
    """Return the preferred kernel that adds `count` tensors from left to right."""
    prop = create(_SUM, {"num_args": count})
    request = ForwardRequest((spec,) * count, (spec,), (OpReqType.WRITE,), False, device)
    for implementation in (*implementations(_SUM, device).values(), NUMPY):
        kernel = implementation.prepare_forward(prop, request)
        if kernel is not None:
            return kernel
    raise InternalError(f"no kernel adds tensors of {spec}")
