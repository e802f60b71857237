"""Prepared kernels: the properties of an implementation that planning needs before memory exists.

`prepare` of an implementation turns specs and the description of a device into a frozen `Kernel`
(layouts, workspace, extra outputs, cost). The memory planner gives every tensor a place.
`Kernel.bind` then turns the handles of these places into launches, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from enum import IntEnum
from functools import partial
from typing import TypeVar

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.tensor import TensorSpec
from mxrun.operator.choices import Choices
from mxrun.operator.launch import Handle, Launch
from mxrun.runtime import random


def stream_of(name: str) -> int:
    """Return the key of the random stream of the node `name`."""
    return random.key_of(name)


class OpReqType(IntEnum):
    """Write mode of one output: skip, write, write in place or add (MXNet's `OpReqType`)."""

    NULL = 0
    WRITE = 1
    INPLACE = 2
    ADD = 3


@dataclass(frozen=True)
class Handles:
    """Handles of a kernel's tensors, in the order of its specs; None for an absent tensor.

    workspace: None if the kernel needs none.
    """

    inputs: tuple[Handle | None, ...]
    outputs: tuple[Handle | None, ...]
    extra_outputs: tuple[Handle | None, ...] = ()
    workspace: Handle | None = None

    def moved(self, to: Callable[[Handle], Handle]) -> Handles:
        """Return the handles of the tensors at other places."""

        def each(handles: tuple[Handle | None, ...]) -> tuple[Handle | None, ...]:
            return tuple(None if handle is None else to(handle) for handle in handles)

        (workspace,) = each((self.workspace,))
        return Handles(each(self.inputs), each(self.outputs), each(self.extra_outputs), workspace)


@dataclass(frozen=True)
class ConcatLayout:
    """Layout of a kernel that concatenates its inputs, side by side, in output 0.

    rows: number of rows of each input and of the output, in memory order.
    widths: elements of each input in a row of the output.
    """

    rows: int
    widths: tuple[int, ...]


@dataclass(frozen=True)
class Candidate:
    """Kernel timed by the autotuner, including the reorders that it requires."""

    implementation: str
    seconds: float


@dataclass(frozen=True)
class Kernel:
    """Selected implementation with all properties but the places of its tensors.

    inputs: the spec each input must have; a reorder is planned where the producer's layout differs;
        None for an input that this implementation does not read (its lifetime is not extended for
        this kernel). A backward kernel's inputs are `out_grad + in_data + out_data + the forward
        kernel's extra outputs`, in that order.
    outputs: the specs produced (a backward kernel's are the gradients of the inputs); None for a
        null request (OpReqType.NULL).
    extra_outputs: tensors that a forward kernel passes to its own backward kernel; scratch tensors
        of a backward kernel.
    in_place: pairs (input, extra output) that may share memory if nothing reads the input later:
        each element of the input is read before that of the extra output is written.
    is_view: output 0 is input 0's memory under another shape; there is nothing to call.
    workspace_bytes: scratch space that is live for this call only.
    flops: floating-point operations; bytes_moved: minimum number of bytes read and written, except
        those that an add-to request reads from its output.
    candidates: all kernels timed by the autotuner, the preferred one first.
    adding: by output, a function that prepares the same kernel with the add-to request. That kernel
        gives the same bits as a separate sum and needs no scratch space for it: see `adding`.
    pitched_inputs, pitched_outputs: by index, the tensors that may be slices of parent buffers,
        with gaps between their rows, and the number of elements in one of these rows.
    join: set for a kernel that copies its inputs into output 0; it skips inputs already stored
        there.
    """

    implementation: str
    inputs: tuple[TensorSpec | None, ...]
    outputs: tuple[TensorSpec | None, ...]
    bind: Callable[[Handles], tuple[Launch, ...]]
    extra_outputs: tuple[TensorSpec, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    workspace_bytes: int = 0
    flops: int = 0
    bytes_moved: int = 0
    is_view: bool = False
    candidates: tuple[Candidate, ...] = ()
    adding: Mapping[int, Callable[[], Kernel | None]] = field(
        default_factory=dict, compare=False, repr=False
    )
    pitched_inputs: Mapping[int, int] = field(default_factory=dict)
    pitched_outputs: Mapping[int, int] = field(default_factory=dict)
    join: ConcatLayout | None = None


# The kernels of an autotune candidate: itself first, then the reorders that it requires.
Kernels = Callable[[], Iterable[Kernel]]


@dataclass(frozen=True)
class ForwardRequest:
    """Arguments of `prepare` for a forward call: the tensors as produced, before any reorder.

    inputs: arguments, auxiliary states and, if the property requests random numbers, the int64
        tensor `random` of shape [2]: the run's key and the step's number.
    device: the device that the kernel shall run on.
    is_train: whether the operator runs in training mode. differentiated: whether the call will have
        a backward call, which it may in inference mode too; see `has_backward`.
    stream: the key of the node's own random stream, a hash of its name.
    fixed: the inputs that do not change between steps; a reorder of them is not part of a step.
    choices: requested implementations of the kernel's parts.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    requests: tuple[OpReqType, ...]
    is_train: bool
    device: DeviceDescription
    stream: int = 0
    fixed: frozenset[int] = frozenset()
    choices: Choices = field(default_factory=Choices, compare=False, repr=False)
    differentiated: bool = False

    @property
    def has_backward(self) -> bool:
        """Whether the kernel must provide what its backward kernel needs."""
        return self.is_train or self.differentiated


@dataclass(frozen=True)
class BackwardRequest:
    """Arguments of `prepare` for a backward call.

    Entries of out_grad, in_data and out_data are None if the property does not declare them, or if
    an output has no gradient. `requests` has one entry per input gradient. `forward` is the kernel
    selected for the forward call. `device` and `choices` are as in a ForwardRequest.
    """

    out_grad: tuple[TensorSpec | None, ...]
    in_data: tuple[TensorSpec | None, ...]
    out_data: tuple[TensorSpec | None, ...]
    in_grad: tuple[TensorSpec, ...]
    requests: tuple[OpReqType, ...]
    forward: Kernel
    device: DeviceDescription
    choices: Choices = field(default_factory=Choices, compare=False, repr=False)


Request = TypeVar("Request", ForwardRequest, BackwardRequest)


def adding(
    prepare: Callable[[Request], Kernel | None], request: Request, outputs: Iterable[int]
) -> dict[int, Callable[[], Kernel | None]]:
    """Return `Kernel.adding` for the kernel of `request`: the entries of `outputs` that it writes.

    The kernel must compute each element of these outputs completely, round it to the output's type,
    and only then add it, once, to the present value.
    """
    written = [index for index in outputs if request.requests[index] is OpReqType.WRITE]
    return {index: partial(_with_add, prepare, request, index) for index in written}


def _with_add(
    prepare: Callable[[Request], Kernel | None], request: Request, output: int
) -> Kernel | None:
    requests = list(request.requests)
    requests[output] = OpReqType.ADD
    return prepare(replace(request, requests=tuple(requests)))
