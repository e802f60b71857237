"""Prepared kernels: what the plan must know of an implementation before anything has an address.

`prepare` of an implementation turns specs into a frozen `Kernel` (layouts, workspace, extra
outputs, cost); the memory pass gives every tensor an address; `Kernel.bind` then turns addresses
into calls, once. A native call is a function address with up to six integer arguments, which the
tape runs without the interpreter; a Python call is a callable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from typing import TypeVar

from mxrun.backend.call import NativeCall
from mxrun.base.tensor import TensorSpec
from mxrun.operator.choices import Choices
from mxrun.runtime import random


def stream_of(name: str) -> int:
    """The key of the random stream of the node `name`."""
    return random.key_of(name)


class OpReqType(IntEnum):
    """What an operator does with one output (MXNet's `OpReqType`)."""

    NULL = 0
    WRITE = 1
    INPLACE = 2
    ADD = 3


@dataclass(frozen=True)
class PythonCall:
    """A call that needs the interpreter: the body of a NumPy or user-written operator."""

    function: Callable[[], None]


Call = NativeCall | PythonCall


@dataclass(frozen=True)
class Buffers:
    """Addresses in bytes, in the order of the kernel's specs; 0 where a tensor is absent.

    input_pitches, output_pitches: of a tensor that lies within a larger one, elements from one of
        its rows to the next; 0 for what lies in one piece. Empty: all do.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    extra_outputs: tuple[int, ...] = ()
    workspace: int = 0
    input_pitches: tuple[int, ...] = ()
    output_pitches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Join:
    """How a kernel's inputs lie side by side in its output 0.

    rows: of both, in the order of memory. widths: elements of each input in a row of the output.
    """

    rows: int
    widths: tuple[int, ...]


@dataclass(frozen=True)
class Candidate:
    """A kernel that was timed before one was chosen, with the reorders that it asks for."""

    implementation: str
    seconds: float


@dataclass(frozen=True)
class Kernel:
    """A chosen implementation with everything known but addresses.

    inputs: the spec each input must have; a reorder is planned where the producer's layout
        differs; None for an input that this implementation does not read (nothing is kept
        alive for it). A backward kernel's inputs are
        `out_grad + in_data + out_data + the forward kernel's extra outputs`, in that order.
    outputs: the specs produced (a backward kernel's are the gradients of the inputs); None for
        an output nobody asked for (OpReqType.NULL).
    extra_outputs: tensors a forward kernel hands to its own backward kernel.
    is_view: output 0 is input 0's memory under another shape; there is nothing to call.
    workspace_bytes: scratch that lives for this call only.
    flops: floating-point operations; bytes_moved: least bytes read and written, without what an
        add-to request finds there.
    candidates: all that were timed before this one was chosen, the preferred one first.
    adding: by output, what gives the same kernel under the add-to request, where that writes the
        very bits that a sum in a step of its own would, and needs no scratch for it: see `adding`.
    pitched_inputs, pitched_outputs: the tensors that may lie within larger ones, their rows apart,
        by index; and how many elements make one of their rows.
    join: of a kernel that copies its inputs into output 0, and leaves out those that lie there.
    """

    implementation: str
    inputs: tuple[TensorSpec | None, ...]
    outputs: tuple[TensorSpec | None, ...]
    bind: Callable[[Buffers], tuple[Call, ...]]
    extra_outputs: tuple[TensorSpec, ...] = ()
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
    join: Join | None = None


# The kernels of an autotune candidate: itself first, then the reorders that it asks for.
Kernels = Callable[[], Iterable[Kernel]]


@dataclass(frozen=True)
class ForwardRequest:
    """What `prepare` is asked: the tensors of a forward call as they come, before any reorder.

    inputs: arguments, auxiliary states and, where the property requests random numbers, the int64
        tensor `random` of shape [2]: the run's key and the step's number.
    stream: the key of the node's own random stream, a hash of its name.
    fixed: the inputs that nothing changes between steps, so that a reorder of them is no part of
        a step.
    choices: what is wanted of a kernel's parts for which there is more than one piece of code.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    requests: tuple[OpReqType, ...]
    is_train: bool
    threads: int
    stream: int = 0
    fixed: frozenset[int] = frozenset()
    choices: Choices = field(default_factory=Choices, compare=False, repr=False)


@dataclass(frozen=True)
class BackwardRequest:
    """What `prepare` is asked for a backward call.

    Entries of out_grad, in_data and out_data are None where the property did not declare them
    (or nobody supplies that output's gradient); `requests` has one entry per input gradient;
    `forward` is the kernel chosen for the forward call; `choices` as in a ForwardRequest.
    """

    out_grad: tuple[TensorSpec | None, ...]
    in_data: tuple[TensorSpec | None, ...]
    out_data: tuple[TensorSpec | None, ...]
    in_grad: tuple[TensorSpec, ...]
    requests: tuple[OpReqType, ...]
    forward: Kernel
    threads: int
    choices: Choices = field(default_factory=Choices, compare=False, repr=False)


Request = TypeVar("Request", ForwardRequest, BackwardRequest)


def adding(
    prepare: Callable[[Request], Kernel | None], request: Request, outputs: Iterable[int]
) -> dict[int, Callable[[], Kernel | None]]:
    """`Kernel.adding` of what `prepare` made of a request: that of `outputs` which it writes.

    For kernels that make an element of these outputs whole, round it to the output's type, and
    only then add it to what is there, once.
    """
    written = [index for index in outputs if request.requests[index] is OpReqType.WRITE]
    return {index: partial(_with_add, prepare, request, index) for index in written}


def _with_add(
    prepare: Callable[[Request], Kernel | None], request: Request, output: int
) -> Kernel | None:
    requests = list(request.requests)
    requests[output] = OpReqType.ADD
    return prepare(replace(request, requests=tuple(requests)))
