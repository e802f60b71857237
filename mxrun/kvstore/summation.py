"""Sum of tensors of several devices, folded from left to right.

It has the same bits whatever ran at what time: ((t0 + t1) + t2) + ..., as `add_n` computes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from mxrun.base.device import DeviceDescription
from mxrun.base.errors import InternalError
from mxrun.base.locks import new_lock
from mxrun.base.tensor import TensorSpec
from mxrun.device.interface import Device, ProgramStep
from mxrun.operator.kernel import ForwardRequest, Handles, Kernel, OpReqType
from mxrun.operator.launch import Handle
from mxrun.operator.numpy_kernel import NUMPY
from mxrun.operator.register import create, implementations

_OPERATOR = "add_n"
_SHORT_BYTES = 32_768


class Summation:
    """Program that adds arrays of one spec, `count` of them, in order."""

    def __init__(self, device: Device, spec: TensorSpec, count: int) -> None:
        kernel = _kernel(device.description, spec, count)

        def steps(handles: Sequence[Handle]) -> Sequence[ProgramStep]:
            *terms, total = handles
            return [ProgramStep(_OPERATOR, kernel.bind(Handles(tuple(terms), (total,))))]

        self._program = device.bind_movable(steps, count + 1, is_short(spec.nbytes, count))
        # A movable program is not reentrant, and a pool may have several workers.
        self._guard = new_lock()

    def run(self, handles: Sequence[Handle]) -> None:
        """Store the sum of the tensors at all handles but the last at the last one.

        That may be the place of one of them.
        """
        with self._guard:
            self._program.run(handles)


def is_short(nbytes: int, count: int) -> bool:
    """Return whether a sum of `count` arrays reads and writes so little that it takes few us."""
    return nbytes * (count + 1) < _SHORT_BYTES


def _kernel(device: DeviceDescription, spec: TensorSpec, count: int) -> Kernel:
    """Return the preferred kernel that adds `count` arrays."""
    prop = create(_OPERATOR, {"num_args": count})
    request = ForwardRequest((spec,) * count, (spec,), (OpReqType.WRITE,), False, device)
    for implementation in (*implementations(_OPERATOR, device).values(), NUMPY):
        kernel = implementation.prepare_forward(prop, request)
        if kernel is not None:
            return kernel
    raise InternalError(f"no kernel adds arrays of {spec}")
