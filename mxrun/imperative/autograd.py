"""Automatic differentiation of operators called one by one (mxnet.autograd).

While a thread records, every operator that reads a marked variable, or something computed from one,
leaves a recorded call behind. `backward` differentiates the calls that end with given heads, as the
graph of a network is differentiated, and runs all backward steps as one operation of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache, partial
from types import TracebackType
from typing import Any

import numpy as np

from mxrun.base.context import Context
from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.imperative import array as array_module
from mxrun.imperative.array import NDArrayBase
from mxrun.imperative.backward import (
    ADD,
    DATA,
    GRADIENT,
    HEAD,
    NULL,
    OUTPUT,
    WRITE,
    BackwardProgram,
    Location,
    Recording,
    is_freed,
    recording_of,
)
from mxrun.imperative.chunk import allocate
from mxrun.imperative.invoke import invoke
from mxrun.imperative.tape import (
    MODE,
    RECORD,
    TRAIN,
    Entry,
    MarkedVariable,
    RecordedCall,
    SavedTensor,
)
from mxrun.operator.launch import TensorPlace
from mxrun.operator.register import AnyProperty, create
from mxrun.runtime.engine.interface import EngineOperator, RunContext, Variable

_MAX_PROGRAMS = 1024
# Ones for larger heads are made anew for every backward.
_MAX_SHARED_BYTES = 1 << 16
_programs: dict[tuple[Any, ...], BackwardProgram] = {}


# -- modes ---------------------------------------------------------------------------------------


class ModeScope:
    """Context manager within which bits of this thread's mode are cleared and others set."""

    __slots__ = ("_before", "_clear", "_set")

    def __init__(self, clear: int, set_: int) -> None:
        self._clear, self._set = clear, set_
        self._before: list[int] = []

    def __enter__(self) -> None:
        before = MODE.value
        self._before.append(before)
        MODE.value = before & ~self._clear | self._set

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        MODE.value = self._before.pop()


def record(train_mode: bool = True) -> ModeScope:
    """Context manager within which this thread records operators, in training mode by default."""
    return ModeScope(TRAIN | RECORD, RECORD | (TRAIN if train_mode else 0))


def pause(train_mode: bool = False) -> ModeScope:
    """Context manager within which this thread records nothing, in inference mode by default."""
    return ModeScope(TRAIN | RECORD, TRAIN if train_mode else 0)


def train_mode() -> ModeScope:
    """Context manager within which operators of this thread run in training mode."""
    return ModeScope(TRAIN, TRAIN)


def predict_mode() -> ModeScope:
    """Context manager within which operators of this thread run in inference mode."""
    return ModeScope(TRAIN, 0)


def is_recording() -> bool:
    """Return whether this thread records."""
    return bool(MODE.value & RECORD)


def is_training() -> bool:
    """Return whether operators of this thread run in training mode."""
    return bool(MODE.value & TRAIN)


# -- variables -----------------------------------------------------------------------------------


def mark_variables(
    variables: Sequence[NDArrayBase],
    gradients: Sequence[NDArrayBase | None],
    grad_reqs: str | Sequence[str] = WRITE,
) -> None:
    """Make arrays variables whose gradients `backward` stores in `gradients`.

    grad_reqs: `write`, `add` or `null`, for all or for each. An array that was computed while
    recording is cut off from what it was computed from. Raises UserError for another request, and
    for a gradient of another shape or dtype than its variable.
    """
    requests = [grad_reqs] * len(variables) if isinstance(grad_reqs, str) else grad_reqs
    for variable, gradient, request in zip(variables, gradients, requests, strict=True):
        if request not in (WRITE, ADD, NULL):
            expected = f"{WRITE}, {ADD} or {NULL}"
            raise UserError(Diagnostic("an unknown grad_req", None, expected, repr(request)))
        if gradient is not None and gradient.spec != variable.spec:
            raise UserError(
                Diagnostic(
                    "the gradient of a variable has another shape or dtype",
                    expected=str(variable.spec),
                    got=str(gradient.spec),
                )
            )
        given = None if request == NULL else gradient
        variable.grad, variable.grad_req = given, request
        marked = MarkedVariable(variable.shape, variable.dtype, given, request)
        variable.entry = Entry(marked)


def attach_grad(variable: NDArrayBase, grad_req: str = WRITE) -> None:
    """Make an array a variable with a new gradient, which is zero until `backward` stores one."""
    gradient = None
    if grad_req != NULL:
        gradient = _new_like(variable)
        _fill_zero(gradient)
    mark_variables([variable], [gradient], grad_req)


# -- gradients -----------------------------------------------------------------------------------


def backward(
    heads: NDArrayBase | Sequence[NDArrayBase],
    head_grads: NDArrayBase | Sequence[NDArrayBase | None] | None = None,
    retain_graph: bool = False,
    train_mode: bool = True,
) -> None:
    """Compute the gradients of all marked variables that `heads` depend on.

    head_grads: the gradients of the heads; None for ones. Operators with a loss, such as
    SoftmaxOutput, ignore theirs. retain_graph: whether the recording can be differentiated once
    more. train_mode: as in MXNet; the backward of an operator follows the mode in which its forward
    ran.

    Raises UserError for a head that was not recorded, or whose recording was differentiated before,
    if it depends on no variable, and if an operator in between has no gradient.
    """
    recording, given = _recorded(heads, head_grads)
    if not recording.variables:
        raise UserError(
            Diagnostic(
                "the heads depend on no variable",
                hint="call attach_grad() on an input before recording, and retain_graph=True to "
                "differentiate parts of a graph one after the other",
            )
        )
    requests = [_request(variable) for variable in recording.variables]
    gradients = [variable.grad for variable in recording.variables]
    _differentiate(recording, requests, gradients, given)
    if not retain_graph:
        _free(recording)


def grad(
    heads: NDArrayBase | Sequence[NDArrayBase],
    variables: NDArrayBase | Sequence[NDArrayBase],
    head_grads: NDArrayBase | Sequence[NDArrayBase | None] | None = None,
    retain_graph: bool | None = None,
) -> list[Any]:
    """Return the gradients of `heads` with respect to marked variables, as new arrays.

    What `attach_grad` made for the variables is left as it is. Raises UserError as `backward` does,
    and for an array that is no marked variable or that no head depends on.
    """
    listed = [variables] if isinstance(variables, NDArrayBase) else list(variables)
    recording, given = _recorded(heads, head_grads)
    positions = []
    for number, variable in enumerate(listed, 1):
        node = None if variable.entry is None else variable.entry.node
        if not isinstance(node, MarkedVariable):
            raise UserError(f"variable {number} is no marked variable; call attach_grad() on it")
        if node not in recording.variables:
            raise UserError(f"no head depends on variable {number}")
        positions.append(recording.variables.index(node))
    requests: list[str | None] = [None] * len(recording.variables)
    gradients: list[NDArrayBase | None] = [None] * len(recording.variables)
    for position, variable in zip(positions, listed, strict=True):
        requests[position] = WRITE
        gradients[position] = _new_like(variable)
    _differentiate(recording, requests, gradients, given)
    if not retain_graph:
        _free(recording)
    return [gradients[position] for position in positions]


def _recorded(
    heads: NDArrayBase | Sequence[NDArrayBase],
    head_grads: NDArrayBase | Sequence[NDArrayBase | None] | None,
) -> tuple[Recording, list[NDArrayBase]]:
    """Return the recording of heads, each once, and their gradients."""
    listed = [heads] if isinstance(heads, NDArrayBase) else list(heads)
    if head_grads is None or isinstance(head_grads, NDArrayBase):
        given = [head_grads] * len(listed)
    else:
        given = list(head_grads)
    if len(given) != len(listed):
        raise UserError(f"{len(listed)} heads have {len(given)} head gradients")
    found: dict[tuple[Any, int], NDArrayBase] = {}
    entries: dict[tuple[Any, int], Entry] = {}
    for head, gradient in zip(listed, given, strict=True):
        entry = head.entry
        if entry is None or is_freed(entry.node):
            raise UserError(
                Diagnostic(
                    "a head is not part of a recorded graph",
                    hint="compute it within autograd.record(); to differentiate a graph twice, "
                    "pass retain_graph=True to the first backward",
                )
            )
        if gradient is not None and gradient.spec != head.spec:
            raise UserError(
                Diagnostic(
                    "a head gradient has another shape or dtype than its head",
                    expected=str(head.spec),
                    got=str(gradient.spec),
                )
            )
        key = (entry.node, entry.index)
        ones = _ones(head) if gradient is None else gradient
        if key in entries:
            with pause():
                (ones,) = invoke(_sum(), [found[key], ones])
        found[key], entries[key] = ones, entry
    return recording_of(list(entries.values())), list(found.values())


def _request(variable: MarkedVariable) -> str | None:
    return None if variable.request == NULL else variable.request


def _free(recording: Recording) -> None:
    for call in recording.calls:
        call.free()


@cache
def _sum() -> AnyProperty:
    return create("elemwise_add", {})


def _new_like(array: NDArrayBase) -> Any:
    """Return a new array of the same shape, dtype and device, with undefined content."""
    chunk = allocate(array.context, array.nbytes)
    return array_module.make(chunk, array.shape, array.dtype)


def _ones(array: NDArrayBase) -> Any:
    """Return an array of ones like another one; small ones are made once."""
    if array.nbytes > _MAX_SHARED_BYTES:
        return _filled_ones(array.context, array.shape, array.dtype)
    return _shared_ones(array.context, array.shape, array.dtype)


def _filled_ones(context: Context, shape: Shape, dtype: str) -> Any:
    ones = np.ones(shape, numpy_dtype(dtype))
    chunk = allocate(context, ones.nbytes)
    chunk.device.write(chunk.handle, ones)
    return array_module.make(chunk, shape, dtype)


_shared_ones = lru_cache(maxsize=256)(_filled_ones)


def _fill_zero(array: NDArrayBase) -> None:
    chunk, nbytes = array.chunk, array.nbytes
    begin = chunk.handle.offset + array.offset
    memory, device = chunk.handle.memory, chunk.device
    is_part = nbytes < chunk.nbytes

    def fill(run_context: RunContext) -> None:
        device.fill(memory, begin, begin + nbytes, 0)

    variables = [chunk.variable]
    chunk.engine.push_sync(
        fill,
        writes=() if is_part else variables,
        updates=variables if is_part else (),
        name="zeros",
        context=chunk.context,
    )


# -- running -------------------------------------------------------------------------------------


def _differentiate(
    recording: Recording,
    requests: Sequence[str | None],
    gradients: Sequence[NDArrayBase | None],
    heads: Sequence[NDArrayBase],
) -> None:
    """Push the operation that writes or adds the gradients; None for those not requested."""
    context = heads[0].context
    program = _program(recording, requests, context)
    for position, request in enumerate(requests):
        gradient = gradients[position]
        if request == WRITE and gradient is not None and position not in program.reached:
            _fill_zero(gradient)
    if program.program is None:
        return
    places: list[TensorPlace] = []
    reads: dict[Variable, None] = {}
    writes: dict[Variable, None] = {}
    updates: dict[Variable, None] = {}
    engine = None
    for location in program.locations:
        if location.kind is GRADIENT:
            gradient = gradients[location.position]
            assert gradient is not None
            chunk, offset = gradient.chunk, gradient.offset
            is_whole = gradient.nbytes >= chunk.nbytes
            kept = location.position in program.updated or not is_whole
            (updates if kept else writes)[chunk.variable] = None
            engine = chunk.engine
        else:
            chunk, offset = _saved(recording, heads, location)
            reads[chunk.variable] = None
        places.append(chunk.handle + offset if offset else chunk.block)
    for variable in [each for each in writes if each in updates or each in reads]:
        del writes[variable]
        updates[variable] = None
    assert engine is not None
    engine.push(
        EngineOperator(
            partial(program.program.run, places),
            [each for each in reads if each not in updates],
            list(writes),
            list(updates),
            name="backward",
            context=context,
        )
    )


def _saved(recording: Recording, heads: Sequence[NDArrayBase], location: Location) -> SavedTensor:
    """Return where a tensor that a backward program reads is."""
    if location.kind is HEAD:
        head = heads[location.position]
        return head.chunk, head.offset
    call = recording.calls[location.position]
    saved: Sequence[SavedTensor | None] = call.extra
    if location.kind is DATA:
        saved = call.data
    elif location.kind is OUTPUT:
        saved = call.outputs
    found = saved[location.index]
    assert found is not None
    return found


def _program(
    recording: Recording, requests: Sequence[str | None], context: Context
) -> BackwardProgram:
    """Return the program for a recording's structure."""
    nodes: list[RecordedCall | MarkedVariable] = [*recording.variables, *recording.calls]
    numbers = {node: index for index, node in enumerate(nodes)}
    key: list[Any] = [context, *requests]
    for call in recording.calls:
        key.append(call.prepared)
        for entry in call.inputs:
            number = None if entry is None else numbers.get(entry.node)
            key += (None,) if entry is None or number is None else (number, entry.index)
    for head in recording.heads:
        key += (numbers[head.node], head.index)
    found = _programs.get(tuple(key))
    if found is None:
        if len(_programs) >= _MAX_PROGRAMS:
            _programs.clear()
        found = BackwardProgram(recording, requests, allocate(context, 0))
        _programs[tuple(key)] = found
    return found
