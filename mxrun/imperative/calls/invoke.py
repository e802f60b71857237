"""Calls of operators on arrays: lookup of the prepared operator, outputs, and one push."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.locks import new_lock
from mxrun.base.tensor import PLAIN, Layout, TensorSpec
from mxrun.compiler.external import plan_reorder
from mxrun.imperative.arrays import array as array_module
from mxrun.imperative.arrays.array import NDArrayBase, set_to_plain, share_bytes
from mxrun.imperative.arrays.chunk import Chunk
from mxrun.imperative.calls.pending import PENDING
from mxrun.imperative.calls.prepared import (
    ConvertedOperator,
    PreparedCall,
    PreparedOperator,
    PreparedProgram,
    integer_arguments,
)
from mxrun.imperative.calls.random import next_state
from mxrun.imperative.differentiation.tape import MODE, RECORD, TRAIN, Entry, RecordedCall
from mxrun.operator.launch import TensorPlace
from mxrun.operator.register import AnyProperty, create
from mxrun.runtime.engine.interface import Engine, Variable

# Mode bit of a call whose results are wanted in plain layout.
_PLAIN = 4
_MAX_PREPARED = 4096

Prepared: TypeAlias = "PreparedOperator | ConvertedOperator"

_prepared: dict[tuple[Any, ...], Prepared] = {}
_reorders: dict[tuple[Any, ...], PreparedProgram] = {}
# Held while an array gets another chunk.
_moving = new_lock()
# Held by a thread that runs a brief call.
_alone = new_lock()


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
    chunks: list[Chunk] = []
    prepared = _lookup(prop, inputs, mode, chunks)
    if isinstance(prepared, ConvertedOperator):
        return invoke(prop, _converted(inputs, prepared.dtypes))
    if not prepared.is_pure or len(prepared.outputs) > 1:
        return _invoke_any(prepared, inputs, chunks, mode)
    # One new array that depends on the inputs alone, in as few statements as possible.
    places: list[TensorPlace] = []
    reads: list[Variable] = []
    for each, chunk in zip(inputs, chunks):  # noqa: B905 - `strict` takes as long as a statement
        places.append(chunk.handle + each.offset if each.offset else chunk.block)
        if chunk not in reads:
            reads.append(chunk)
    (spec,) = prepared.outputs
    made = chunk.another(spec.nbytes, spec.layout)
    places.append(made.block)
    _push(prepared, places, reads, (made,), (), made, spec.nbytes)
    output = array_module.make(made, spec.shape, spec.dtype)
    if mode >= RECORD:
        _record(prepared, inputs, chunks, (made,), (output,))
    return (output,)


def _invoke_any(
    prepared: PreparedOperator,
    inputs: Sequence[NDArrayBase],
    chunks: Sequence[Chunk],
    mode: int,
) -> tuple[Any, ...]:
    """Call an operator with any number of outputs, which may draw numbers or change its inputs."""
    first = chunks[0]
    places = list(map(_place, inputs, chunks))
    reads: list[Variable] = list(chunks)
    if prepared.is_random:
        state = next_state(first)
        places.append(state.block)
        reads.append(state)
    updates = list(dict.fromkeys(reads[index] for index in prepared.updated))
    reads = [variable for variable in dict.fromkeys(reads) if variable not in updates]
    made = [first.another(spec.nbytes, spec.layout) for spec in prepared.outputs]
    places += [chunk.block for chunk in made]
    _push(prepared, places, reads, made, updates, first, prepared.result_bytes)
    make = array_module.make
    outputs = tuple(
        make(chunk, spec.shape, spec.dtype)
        for spec, chunk in zip(prepared.visible_outputs, made, strict=False)
    )
    if mode >= RECORD:
        _record(prepared, inputs, chunks, made, outputs)
    return outputs


def _place(array: NDArrayBase, chunk: Chunk) -> TensorPlace:
    return chunk.handle + array.offset if array.offset else chunk.block


def _lookup(
    prop: AnyProperty, inputs: Sequence[NDArrayBase], mode: int, chunks: list[Chunk]
) -> Prepared:
    """Return the prepared operator; raises UserError if it cannot be prepared.

    chunks: receives the memory of each input, for whose layout the operator is prepared. Another
    thread may give an array another chunk at any time.
    """
    if not inputs:
        raise UserError(f"{prop.type_string} has no input that says where it shall run")
    device = inputs[0]._chunk.device
    key: list[Any] = [prop, device, mode]
    for each in inputs:
        chunk = each._chunk
        chunks.append(chunk)
        layout = chunk.layout
        key += (each.shape, each.dtype, layout if layout is None else layout.name)
        if chunk.device is not device:
            raise UserError(_several_devices(prop, inputs))
    found = _prepared.get(tuple(key))
    if found is None:
        found = _prepare(prop, inputs, chunks, key[1:])
        if len(_prepared) >= _MAX_PREPARED:
            _prepared.clear()
        _prepared[tuple(key)] = found
    return found


def _converted(inputs: Sequence[NDArrayBase], dtypes: Mapping[int, str]) -> list[NDArrayBase]:
    """Return the inputs with those in `dtypes` converted."""
    converted = list(inputs)
    for position, dtype in dtypes.items():
        (converted[position],) = invoke(_cast(dtype), [inputs[position]])
    return converted


@cache
def _cast(dtype: str) -> AnyProperty:
    return create("Cast", {"dtype": dtype})


def _several_devices(prop: AnyProperty, inputs: Sequence[NDArrayBase]) -> Diagnostic:
    return Diagnostic(
        f"{prop.type_string} is called with arrays on several devices",
        expected="all on one",
        got=", ".join(dict.fromkeys(str(each.context) for each in inputs)),
        hint="copy with as_in_context",
    )


def _prepare(
    prop: AnyProperty,
    inputs: Sequence[NDArrayBase],
    chunks: Sequence[Chunk],
    rest: Sequence[Any],
) -> Prepared:
    """Return the operator prepared for an equal property; rest: key without the property."""
    key = (type(prop), repr(prop.parameters), *rest)
    found = _prepared.get(key)
    if found is None:
        specs = [
            TensorSpec(each.shape, each.dtype, chunk.layout or PLAIN)
            for each, chunk in zip(inputs, chunks, strict=True)
        ]
        dtypes = integer_arguments(prop, specs) if len(specs) == _count(prop) else {}
        if dtypes:
            found = ConvertedOperator(dtypes)
        else:
            chunk, mode = chunks[0], rest[1]
            modes = (bool(mode & bit) for bit in (TRAIN, RECORD, _PLAIN))
            if not mode & TRAIN:
                # Its gradient, too, treats the states as constants.
                prop = prop.with_frozen_states() or prop
            found = PreparedOperator(prop, specs, chunk.device, chunk.context, *modes)
        _prepared[key] = found
    return found


def _count(prop: AnyProperty) -> int:
    return len(prop.list_arguments()) + len(prop.list_auxiliary_states())


def _push(
    prepared: PreparedOperator,
    places: Sequence[TensorPlace],
    reads: Sequence[Variable],
    writes: Sequence[Variable],
    updates: Sequence[Variable],
    chunk: Chunk,
    new_bytes: int,
) -> None:
    """Push a call on the engine and device of `chunk`; one that takes little time runs here if it
    can.

    The variables are distinct. new_bytes: of results that are new arrays.
    """
    try:
        operator = prepared.idle.pop()
    except IndexError:
        operator = PreparedCall(prepared, chunk.context)
    operator.arguments.places = places
    operator.set_variables(reads, writes, updates)
    if prepared.is_short:
        is_complete = chunk.engine.run_or_push(operator)
    elif prepared.is_brief and _alone.acquire(blocking=False):
        is_complete = _run_alone(operator, chunk.engine, new_bytes)
    else:
        is_complete = False
        PENDING.push(chunk.engine, operator, new_bytes)
    if is_complete:
        operator.arguments.places = ()
        operator.set_variables((), ())
        prepared.idle.append(operator)


def _run_alone(operator: PreparedCall, engine: Engine, new_bytes: int) -> bool:
    """Run a brief call here if no pending function uses its variables, else push it; return whether
    it ran here.

    The caller has acquired `_alone`: one thread at a time does so, because each occupies
    all cores.
    """
    try:
        if all(map(engine.is_idle, (*operator.reads, *operator.changes))):
            return engine.run_or_push(operator)
    finally:
        _alone.release()
    PENDING.push(engine, operator, new_bytes)
    return False


def _invoke_into(
    prop: AnyProperty, inputs: Sequence[NDArrayBase], out: Sequence[NDArrayBase], mode: int
) -> tuple[Any, ...]:
    """Call an operator that writes to existing arrays."""
    chunks: list[Chunk] = []
    prepared = _lookup(prop, inputs, mode | _PLAIN, chunks)
    if isinstance(prepared, ConvertedOperator):
        return invoke(prop, _converted(inputs, prepared.dtypes), out)
    _check_out(prepared, out)
    if _must_copy(prepared, inputs, out):
        for result, target in zip(invoke(prop, inputs), out, strict=True):
            _invoke_into(_copy(), [result], [target], MODE.value & TRAIN)
        return tuple(out)
    places = list(map(_place, inputs, chunks))
    reads: list[Variable] = list(chunks)
    first = chunks[0]
    updates: list[Variable] = []
    writes: list[Variable] = []
    hidden: list[Chunk] = []
    if not prepared.is_pure:
        if prepared.is_random:
            state = next_state(first)
            places.append(state.block)
            reads.append(state)
        updates = [reads[index] for index in prepared.updated]
    for array, spec in zip(out, prepared.outputs, strict=False):
        chunk = array.chunk
        places.append(chunk.handle + array.offset if array.offset else chunk.block)
        if chunk.variable in reads or spec.nbytes < chunk.nbytes:
            updates.append(chunk.variable)
        else:
            writes.append(chunk.variable)
    if len(out) < len(prepared.outputs):
        hidden = [first.another(spec.nbytes) for spec in prepared.outputs[len(out) :]]
        places += [chunk.block for chunk in hidden]
        writes += [chunk.variable for chunk in hidden]
    if len(updates) > 1:
        updates = list(dict.fromkeys(updates))
    reads = [variable for variable in dict.fromkeys(reads) if variable not in updates]
    _push(prepared, places, reads, writes, updates, first, sum(each.nbytes for each in hidden))
    if mode >= RECORD:
        _record(prepared, inputs, chunks, [*(array._chunk for array in out), *hidden], out)
    return tuple(out)


@cache
def _copy() -> AnyProperty:
    return create("_copy", {})


def _check_out(prepared: PreparedOperator, out: Sequence[NDArrayBase]) -> None:
    """Raise UserError unless `out` has the shapes, dtypes and device of the visible outputs."""
    expected = prepared.outputs[: prepared.visible]
    if len(out) != len(expected):
        problem = f"{prepared.name} has {len(expected)} outputs, and out has {len(out)} arrays"
        raise UserError(problem)
    for array, spec in zip(out, expected, strict=True):
        if array.shape != spec.shape or array.dtype != spec.dtype:
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
        chunk, others = target._chunk, 0
        for index, each in enumerate(inputs):
            if each._chunk is chunk and share_bytes(each, target):
                others += 1
                same_place = each.offset == target.offset
                if others > 1 or not same_place or (index, position) not in prepared.in_place:
                    return True
    return len(out) > 1 and any(
        share_bytes(left, right) for index, left in enumerate(out) for right in out[:index]
    )


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
        if entry is not None and entry.is_live:
            return True
    return False


def _record(
    prepared: PreparedOperator,
    inputs: Sequence[NDArrayBase],
    chunks: Sequence[Chunk],
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
            (chunk, each.offset) if index in prepared.read_data else None
            for index, (each, chunk) in enumerate(zip(arguments, chunks, strict=False))
        ),
        tuple(
            places[index] if index in prepared.read_outputs else None
            for index in range(len(prepared.output_specs))
        ),
        tuple((chunk, 0) for chunk in made[len(prepared.kept) :]),
    )
    for index, array in enumerate(outputs):
        array.entry = Entry(call, index)


def _to_plain(array: NDArrayBase) -> Chunk:
    """Move an array to a new chunk, in plain layout; return its chunk."""
    with _moving:
        chunk = array._chunk
        if chunk.layout is not None:
            array._chunk = chunk = _reordered(array, chunk, chunk.layout)
    return chunk


def _reordered(array: NDArrayBase, old: Chunk, layout: Layout) -> Chunk:
    """Return a new chunk with the array in plain layout."""
    key = (old.device, array.shape, array.dtype, layout)
    program = _reorders.get(key)
    if program is None:
        spec = TensorSpec(array.shape, array.dtype, layout)
        plan = plan_reorder(spec, old.device.description)
        program = _reorders[key] = PreparedProgram(plan, old.device, old.context)
    new = old.another(array.nbytes)
    old.engine.push_sync(
        partial(program.run, [old.block, new.block]),
        [old.variable],
        [new.variable],
        name="reorder",
        context=old.context,
    )
    return new


set_to_plain(_to_plain)
