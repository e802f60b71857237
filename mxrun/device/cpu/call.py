"""Native calls, the executable form of a launch on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.codegen.arguments import Arguments, slot_of
from mxrun.codegen.intrinsics import call_address
from mxrun.codegen.jit import ALONE, NativeCode, inlined, require_arguments
from mxrun.device.cpu.pool import MOST_TASKS, PooledTasks, pool_of, run_tasks

Failure = npt.NDArray[np.int64]

# A row of packed calls: function address, 1 if its result is a status, six arguments.
FIRST_ARGUMENT = 2
_MAX_ARGUMENTS = 6


class Address(int):
    """Address of a tensor that moves: `strides` bytes in an iteration of each enclosing loop.

    movable: number of the tensor of a movable program that it moves with, from run to run.
    """

    strides: tuple[int, ...]
    movable: int | None

    def __new__(cls, address: int, strides: tuple[int, ...], movable: int | None = None) -> Address:
        """Return the address in the first iterations."""
        made = super().__new__(cls, address)
        made.strides, made.movable = strides, movable
        return made

    def __add__(self, nbytes: int) -> Address:
        """Return the address of the byte that is `nbytes` further."""
        return Address(int(self) + nbytes, self.strides, self.movable)


def is_moving(value: object) -> TypeGuard[Address]:
    """Return whether a value is an address that moves in loops or from run to run."""
    return isinstance(value, Address) and (value.movable is not None or any(value.strides))


@dataclass(frozen=True)
class MovingWord:
    """64-bit word in the memory of a call that holds a moving address.

    word: address of the word. strides, movable: as of the address that it holds.
    """

    word: int
    strides: tuple[int, ...]
    movable: int | None = None

    @classmethod
    def holding(cls, address: Address, word: int) -> MovingWord:
        """Return the word at `word` that holds `address`."""
        return cls(word, address.strides, address.movable)


@dataclass(frozen=True)
class NativeCall:
    """The C call `function(*arguments)` with at most six integer or pointer arguments.

    The function returns int or void. owner: holds references to everything the arguments point to.
    checked: the result is a status, and a status other than zero stops the tape. count: number of
    calls, more than one for a loop of calls. moves: words of the arguments' memory that change
    between the iterations of a loop or between runs; an argument itself may be a moving address
    too. failed: words [1] that are not zero after the call if a call that it makes
    has failed.
    """

    function: int
    arguments: tuple[int, ...]
    owner: Any
    checked: bool = False
    count: int = 1
    moves: tuple[MovingWord, ...] = ()
    failed: tuple[Failure, ...] = ()


def pack(calls: Sequence[NativeCall]) -> npt.NDArray[np.int64]:
    """Return calls as rows of 64-bit words."""
    columns = FIRST_ARGUMENT + _MAX_ARGUMENTS
    packed: npt.NDArray[np.int64] = np.zeros((len(calls), columns), np.int64)
    for row, call in zip(packed, calls, strict=True):
        if len(call.arguments) > _MAX_ARGUMENTS:
            raise InternalError(f"a native call takes at most {_MAX_ARGUMENTS} arguments")
        row[0], row[1] = call.function, call.checked
        row[FIRST_ARGUMENT : FIRST_ARGUMENT + len(call.arguments)] = call.arguments
    return packed


def words_of(calls: Sequence[NativeCall], packed: npt.NDArray[np.int64]) -> Iterator[MovingWord]:
    """Yield all words that move: in the memory of the calls, and in their packed rows."""
    for row, call in zip(packed, calls, strict=True):
        yield from call.moves
        for number, argument in enumerate(call.arguments, FIRST_ARGUMENT):
            if is_moving(argument):
                yield MovingWord.holding(argument, row[number:].ctypes.data)


@inlined
def made_call(rows: Any, index: int) -> int:
    """Make a packed call and return its status, or 0 if its result is none."""
    row = index * 8
    result = call_address(
        rows[row],
        rows[row + 2],
        rows[row + 3],
        rows[row + 4],
        rows[row + 5],
        rows[row + 6],
        rows[row + 7],
    )
    # A C int occupies only the lower half of the register.
    status: int = rows[row + 1] * (result & 0xFFFFFFFF)
    return status


@dataclass(frozen=True)
class TaskThreads:
    """Threads that run the tasks of a loop: up to `threads` of those of device `index`."""

    threads: int = 1
    index: int = 0

    def at_most(self, threads: int) -> TaskThreads:
        """Return no more than some threads."""
        return replace(self, threads=min(self.threads, threads))


ALONE_WORKER = TaskThreads()


def loop_call(
    function: NativeCode,
    arguments: Arguments | tuple[Any, ...],
    tasks: int = 1,
    workers: TaskThreads = ALONE_WORKER,
) -> NativeCall:
    """Pack the argument block of a loop of `tasks`, which the workers run together.

    arguments: the slots themselves for code that was not compiled from a Python body. Raises
    TypeError if they are not of the class that a native function declares, and InternalError for
    more tasks than the pool can number.
    """
    if tasks > MOST_TASKS:
        raise InternalError(f"a loop of {tasks} tasks: the pool numbers {MOST_TASKS} at most")
    require_arguments(function, arguments)
    if isinstance(arguments, Arguments):
        slots = list(arguments.slots())
        block = arguments.packed()
    else:
        slots = list(enumerate(arguments))
        block = np.array([*map(slot_of, arguments)], np.int64)
    address = block.ctypes.data
    moves = tuple(
        MovingWord.holding(value, address + number * block.itemsize)
        for number, value in slots
        if is_moving(value)
    )
    owner: tuple[Any, ...] = (block, function, arguments)
    if tasks == 1:
        return NativeCall(function.address, (address, *ALONE), owner, moves=moves)
    pool = pool_of(workers.index)
    pooled = PooledTasks(
        function=function.address,
        block=address,
        tasks=tasks,
        workers=pool.start(min(workers.threads, tasks)),
        **pool.arguments(),
    )
    given = pooled.packed()
    return NativeCall(
        run_tasks.address, (given.ctypes.data, *ALONE), (*owner, pooled, given), moves=moves
    )
