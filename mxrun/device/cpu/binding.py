"""Launches → native calls: handles become addresses, and programs that repeat become loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.codegen.arguments import Arguments, Int64s, Integer, Table
from mxrun.codegen.intrinsics import int64s
from mxrun.codegen.jit import native
from mxrun.device.cpu.call import (
    Address,
    Failure,
    NativeCall,
    TaskThreads,
    loop_call,
    made_call,
    pack,
    words_of,
)
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.onednn.launch import PrimitiveLaunch
from mxrun.device.host_memory import MovableMemory, address_of, array_of, limited_body
from mxrun.operator.launch import (
    Handle,
    Launch,
    LoopLaunch,
    PythonLaunch,
    Repeat,
    runs_python,
)

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PythonCall:
    """Call that needs the interpreter: the body of a NumPy or user-written operator."""

    function: Callable[[], None]


Call = NativeCall | PythonCall
# Prepares a Python body for given iterations of the enclosing loops.
PrepareBody = Callable[[PythonLaunch, tuple[int, ...]], Callable[[], None]]


def prepared_body(launch: PythonLaunch, iterations: tuple[int, ...]) -> Callable[[], None]:
    """Return a Python body's function on its tensors' present places."""
    return launch.prepare(lambda handle, spec: array_of(handle, spec, iterations))


def calls_of(
    launch: Launch,
    workers: TaskThreads,
    iterations: tuple[int, ...] = (),
    depth: int = 0,
    prepare: PrepareBody = prepared_body,
) -> tuple[Call, ...]:
    """Return the calls of a launch, whose tasks `workers` run.

    iterations: those of enclosing loops that are unrolled. depth: number of enclosing loops.
    """
    if isinstance(launch, Repeat):
        return _repeated(launch, workers, iterations, depth, prepare)

    def place(value: Any) -> Any:
        return _address(value, iterations) if isinstance(value, Handle) else value

    if isinstance(launch, LoopLaunch):
        given = launch.arguments
        if isinstance(given, Arguments):
            return (loop_call(launch.function, given.with_values(place), launch.tasks, workers),)
        return (loop_call(launch.function, tuple(map(place, given)), launch.tasks, workers),)
    if isinstance(launch, PythonLaunch):
        return (PythonCall(prepare(launch, iterations)),)
    if isinstance(launch, PrimitiveLaunch):
        addresses = {argument: place(handle) for argument, handle in launch.places.items()}
        scratch = 0 if launch.scratch is None else place(launch.scratch)
        return launch.computation.bind(addresses, scratch, workers)
    raise InternalError(f"the CPU cannot run {type(launch).__name__}")


def _address(handle: Handle, iterations: tuple[int, ...]) -> int:
    """Return a tensor's address, which moves with a movable memory and by strides in loops that are
    not unrolled.
    """
    address, memory = address_of(handle, iterations), handle.memory
    strides = (0,) * len(iterations) + handle.strides[len(iterations) :]
    movable = memory.number if isinstance(memory, MovableMemory) else None
    return Address(address, strides, movable) if movable is not None or any(strides) else address


def _repeated(
    repeat: Repeat,
    workers: TaskThreads,
    iterations: tuple[int, ...],
    depth: int,
    prepare: PrepareBody,
) -> tuple[Call, ...]:
    """Return one native call for a loop; one after the other for a loop with Python bodies."""
    limit = None if repeat.limit is None else _address(repeat.limit, iterations)
    if runs_python(repeat):
        return tuple(
            _limited(call, repeat, iteration, limit, iterations)
            for iteration in range(repeat.count)
            for launch in repeat.program
            for call in calls_of(launch, workers, (*iterations, iteration), depth + 1, prepare)
        )
    inner = [
        call
        for launch in repeat.program
        for call in calls_of(launch, workers, iterations, depth + 1, prepare)
        if isinstance(call, NativeCall)
    ]
    return (_loop(repeat.count, inner, depth, limit, repeat.from_end),)


def _limited(
    call: Call, repeat: Repeat, iteration: int, limit: int | None, iterations: tuple[int, ...]
) -> Call:
    """Return a call of one iteration of an unrolled loop, which is made within its limit alone."""
    if repeat.limit is None or limit is None:
        return call
    rank = repeat.rank(iteration)
    if isinstance(call, NativeCall):
        return _loop(1, [call], len(iterations), limit, first=rank)
    return PythonCall(limited_body(repeat.limit, rank, iterations, call.function))


class RepeatedCalls(Arguments):
    """Arguments of `repeat_loop`.

    limit: None, or the number of iterations that run at most, of which `first` have run in earlier
    loops. from_end: whether they are the last ones. calls: `call_count` packed rows. words: the
    addresses of words in the memory of the calls; strides [word_count]: bytes by which each moves
    per iteration. failed [1]: set to 1 if a call fails, and left as it is otherwise.
    """

    count: Integer
    limit: Int64s
    first: Integer
    from_end: Integer
    calls: Int64s
    call_count: Integer
    words: Table
    strides: Int64s
    word_count: Integer
    failed: Int64s


@native
def repeat_loop(call: RepeatedCalls) -> None:
    """Make all calls for each iteration that runs, then move the words back."""
    number = call.count
    if call.limit is not None:
        number = min(max(call.limit[0] - call.first, 0), call.count)
    skipped = call.count - number if call.from_end != 0 else 0
    for word in range(call.word_count):
        int64s(call.words, word)[0] += skipped * call.strides[word]
    for _ in range(number):
        for i in range(call.call_count):
            if made_call(call.calls, i) != 0:
                call.failed[0] = 1
        for word in range(call.word_count):
            int64s(call.words, word)[0] += call.strides[word]
    for word in range(call.word_count):
        int64s(call.words, word)[0] -= (skipped + number) * call.strides[word]


def _loop(
    count: int,
    calls: Sequence[NativeCall],
    depth: int,
    limit: int | None = None,
    from_end: bool = False,
    first: int = 0,
) -> NativeCall:
    """Return the call that repeats `calls`, the loop number `depth` from outside.

    limit: address of the number of iterations that run at most.
    """
    packed = pack(calls)
    moves = tuple(words_of(calls, packed))
    own = [move for move in moves if len(move.strides) > depth and move.strides[depth]]
    failed: Failure = np.zeros(1, np.int64)
    repetition = RepeatedCalls(
        count=count,
        limit=limit,
        first=first,
        from_end=from_end,
        calls=packed,
        call_count=len(calls),
        words=tuple(move.word for move in own),
        strides=np.array([move.strides[depth] for move in own], np.int64),
        word_count=len(own),
        failed=failed,
    )
    made = loop_call(repeat_loop, repetition)
    outer = tuple(move for move in moves if move.movable is not None or any(move.strides[:depth]))
    failures = (failed, *(each for call in calls for each in call.failed))
    number = 1 + count * sum(call.count for call in calls)
    return replace(
        made, owner=(made.owner, calls), count=number, moves=(*made.moves, *outer), failed=failures
    )


def start_call() -> tuple[NativeCall, ...]:
    """Return the call at the beginning of a program that lets oneDNN use one thread, if any.

    A program may run on any thread of the interpreter.
    """
    onednn = library.load()
    if onednn is None or not onednn.set_threads:
        return ()
    return (NativeCall(onednn.set_threads, (1,), None),)
