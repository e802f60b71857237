"""Calls of operators on arrays: lookup of the prepared operator, outputs, and one push."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mxrun.base.context import Context
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import PLAIN, TensorSpec
from mxrun.compiler.external import plan_reorder
from mxrun.device.interface import Device
from mxrun.imperative import array as array_module
from mxrun.imperative.array import NDArrayBase, set_to_plain
from mxrun.imperative.chunk import Chunk, allocate
from mxrun.imperative.prepared import PreparedOperator, PreparedProgram
from mxrun.imperative.random import next_state
from mxrun.imperative.tape import MODE, RECORD, TRAIN, Entry, RecordedCall
from mxrun.operator.register import AnyProperty, create
from mxrun.runtime.engine.interface import EngineOperator, Variable

# Mode bit of a call whose results are wanted in plain layout.
_PLAIN = 4
_MAX_PREPARED = 4096

_prepared: dict[tuple[Any, ...], PreparedOperator] = {}
_reorders: dict[tuple[Any, ...], PreparedProgram] = {}


def invoke(
    prop: AnyProperty,
    inputs: Sequence[NDArrayBase],
    out: Sequence[NDArrayBase] | None = None,
) -> tuple[Any, ...]:
    """Call an operator and return its visible outputs at once; the engine computes them.

    inputs: the arguments and then the auxiliary states, all on one device. out: arrays to write
    the outputs to, which are then returned; without it new arrays are made.

    Raises UserError for arrays that the operator cannot take, and for `out` while recording, if it
    is part of the recorded graph. An exception of the operator itself is raised where somebody
    waits for an output.
    """
    mode = MODE.value
    if mode >= RECORD and not _is_recorded(prop, inputs, out):
        mode -= RECORD
    if out is not None:
        return _invoke_into(prop, inputs, out, mode)
    prepared = _lookup(prop, inputs, mode)
    chunks = [input._chunk for input in inputs]
    context = chunks[0].context
    handles = [_handle(input) for input in inputs]
    state = next_state(context) if prepared.is_random else None
    if state is not None:
        chunks.append(state)
        handles.append(state.handle)
    made = [allocate(context, spec.nbytes) for spec in prepared.outputs]
    handles += [chunk.handle for chunk in made]
    reads = dict.fromkeys(chunk.variable for chunk in chunks)
    updates = [chunks[index].variable for index in prepared.updated]
    for variable in updates:
        reads.pop(variable, None)
    _push(prepared, handles, tuple(reads), [chunk.variable for chunk in made], updates, chunks[0])
    outputs = tuple(
        array_module.make_array(chunk, spec.shape, spec.dtype, 0, spec.layout)
        for chunk, spec in zip(made, prepared.outputs[: prepared.visible], strict=False)
    )
    if mode >= RECORD:
        _record(prepared, inputs, made, outputs)
    return outputs


def _handle(array: NDArrayBase) -> Any:
    return array._chunk.handle + array.offset if array.offset else array._chunk.handle


def _lookup(prop: AnyProperty, inputs: Sequence[NDArrayBase], mode: int) -> PreparedOperator:
    """Return the prepared operator; raises UserError if it cannot be prepared."""
    if not inputs:
        raise UserError(f"{prop.type_string} has no input that says where it shall run")
    key: list[Any] = [prop, inputs[0]._chunk.device, mode]
    for each in inputs:
        key += (each.shape, each.dtype, each.layout)
    found = _prepared.get(tuple(key))
    if found is None:
        found = _prepare(prop, inputs, mode)
        if len(_prepared) >= _MAX_PREPARED:
            _prepared.clear()
        _prepared[tuple(key)] = found
    return found


def _prepare(prop: AnyProperty, inputs: Sequence[NDArrayBase], mode: int) -> PreparedOperator:
    key: list[Any] = [type(prop), repr(prop.parameters), inputs[0]._chunk.device, mode]
    for each in inputs:
        key += (each.shape, each.dtype, each.layout)
    found = _prepared.get(tuple(key))
    if found is None:
        device = _device_of(prop, inputs)
        specs = [TensorSpec(each.shape, each.dtype, each.layout or PLAIN) for each in inputs]
        found = _prepared[tuple(key)] = PreparedOperator(
            prop, specs, device, bool(mode & TRAIN), bool(mode & RECORD), bool(mode & _PLAIN)
        )
    return found


def _device_of(prop: AnyProperty, inputs: Sequence[NDArrayBase]) -> Device:
    contexts: dict[Context, None] = dict.fromkeys(each.context for each in inputs)
    if len(contexts) > 1:
        raise UserError(
            Diagnostic(
                f"{prop.type_string} is called with arrays on several devices",
                expected="all on one",
                got=", ".join(map(str, contexts)),
                hint="copy with as_in_context",
            )
        )
    return inputs[0]._chunk.device


def _push(
    prepared: PreparedOperator,
    handles: list[Any],
    reads: Sequence[Variable],
    writes: Sequence[Variable],
    updates: Sequence[Variable],
    chunk: Chunk,
) -> None:
    operator = EngineOperator(
        partial(prepared.run, handles),
        reads,
        writes,
        updates,
        name=prepared.name,
        context=chunk.context,
    )
    if prepared.is_short:
        chunk.engine.run_or_push(operator)
    else:
        chunk.engine.push(operator)


def _invoke_into(
    prop: AnyProperty, inputs: Sequence[NDArrayBase], out: Sequence[NDArrayBase], mode: int
) -> tuple[Any, ...]:
    """Call an operator that writes to existing arrays."""
    prepared = _lookup(prop, inputs, mode | _PLAIN)
    _check_out(prepared, out)
    targets = [array.chunk for array in out]
    if _must_copy(prepared, inputs, out):
        for result, target in zip(invoke(prop, inputs), out, strict=True):
            _invoke_into(create("_copy", {}), [result], [target], MODE.value & TRAIN)
        return tuple(out)
    chunks = [input._chunk for input in inputs]
    handles = [_handle(input) for input in inputs]
    context = chunks[0].context
    if prepared.is_random:
        chunks.append(next_state(context))
        handles.append(chunks[-1].handle)
    handles += [_handle(array) for array in out]
    hidden = [allocate(context, spec.nbytes) for spec in prepared.outputs[len(out) :]]
    handles += [chunk.handle for chunk in hidden]
    reads = dict.fromkeys(chunk.variable for chunk in chunks)
    updates = dict.fromkeys(chunks[index].variable for index in prepared.updated)
    writes = [chunk.variable for chunk in hidden]
    for array, chunk in zip(out, targets, strict=True):
        if chunk.variable in reads or array.nbytes < chunk.nbytes:
            updates[chunk.variable] = None
        elif chunk.variable not in updates:
            writes.append(chunk.variable)
    for variable in updates:
        reads.pop(variable, None)
    _push(prepared, handles, tuple(reads), writes, tuple(updates), chunks[0])
    if mode >= RECORD:
        _record(prepared, inputs, [*targets, *hidden], out)
    return tuple(out)


def _check_out(prepared: PreparedOperator, out: Sequence[NDArrayBase]) -> None:
    """Raise UserError unless `out` has the shapes, dtypes and device of the visible outputs."""
    expected = prepared.outputs[: prepared.visible]
    if len(out) != len(expected):
        problem = f"{prepared.name} has {len(expected)} outputs, and out has {len(out)} arrays"
        raise UserError(problem)
    for array, spec in zip(out, expected, strict=True):
        if (array.shape, array.dtype) != (spec.shape, spec.dtype):
            raise UserError(
                Diagnostic(
                    f"out does not fit the output of {prepared.name}",
                    expected=str(TensorSpec(spec.shape, spec.dtype)),
                    got=str(array.spec),
                )
            )
        if array._chunk.device is not prepared.device:
            raise UserError(f"{prepared.name}: out is on {array.context}, the inputs are not")


def _must_copy(
    prepared: PreparedOperator, inputs: Sequence[NDArrayBase], out: Sequence[NDArrayBase]
) -> bool:
    """Return whether an output overlaps with an input in a way that the operator does not allow."""
    for position, target in enumerate(out):
        shared = [index for index, each in enumerate(inputs) if _overlap(each, target)]
        if not shared:
            continue
        (first, *others) = shared
        same_place = inputs[first].offset == target.offset
        if others or not same_place or (first, position) not in prepared.in_place:
            return True
    return any(_overlap(left, right) for index, left in enumerate(out) for right in out[:index])


def _overlap(left: NDArrayBase, right: NDArrayBase) -> bool:
    if left._chunk is not right._chunk:
        return False
    return left.offset < right.offset + right.nbytes and right.offset < left.offset + left.nbytes


def _is_recorded(
    prop: AnyProperty, inputs: Sequence[NDArrayBase], out: Sequence[NDArrayBase] | None
) -> bool:
    """Return whether a call is recorded; raises UserError if it changes a recorded array."""
    if out is not None and any(array.entry is not None for array in out):
        raise UserError(
            Diagnostic(
                f"{prop.type_string} overwrites an array that is part of a recorded graph",
                hint="in-place operations such as +=, x[:] = ... and out= cannot be recorded; "
                "use a new array, or autograd.pause()",
            )
        )
    for each in inputs:
        entry = each.entry
        if entry is not None and not (isinstance(entry.node, RecordedCall) and entry.node.is_freed):
            return True
    return False


def _record(
    prepared: PreparedOperator,
    inputs: Sequence[NDArrayBase],
    made: Sequence[Chunk],
    outputs: Sequence[NDArrayBase],
) -> None:
    """Leave a recorded call behind, as the entry of every output."""
    places = {position: (chunk, 0) for position, chunk in zip(prepared.kept, made, strict=False)}
    for index, array in enumerate(outputs):
        places[index] = (array._chunk, array.offset)
    arguments = inputs[: len(prepared.prop.list_arguments())]
    call = RecordedCall(
        prepared,
        tuple(each.entry for each in arguments),
        tuple(
            (each._chunk, each.offset) if index in prepared.read_data else None
            for index, each in enumerate(arguments)
        ),
        tuple(
            places[index] if index in prepared.read_outputs else None
            for index in range(len(prepared.output_specs))
        ),
        tuple((chunk, 0) for chunk in made[len(prepared.kept) :]),
    )
    for index, array in enumerate(outputs):
        array.entry = Entry(call, index)


def _to_plain(array: NDArrayBase) -> None:
    """Move an array to a new chunk, in plain layout."""
    old, layout = array._chunk, array.layout
    if layout is None:
        return
    key = (old.device, array.shape, array.dtype, layout)
    program = _reorders.get(key)
    if program is None:
        spec = TensorSpec(array.shape, array.dtype, layout)
        plan = plan_reorder(spec, old.device.description)
        program = _reorders[key] = PreparedProgram(plan, old.device)
    new = allocate(old.context, array.nbytes)
    old.engine.push_sync(
        partial(program.run, [old.handle, new.handle]),
        [old.variable],
        [new.variable],
        name="reorder",
        context=old.context,
    )
    array._chunk, array.layout = new, None


set_to_plain(_to_plain)
