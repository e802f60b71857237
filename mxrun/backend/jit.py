"""Native functions from Python source: loops compiled by numba, called by address.

A native function takes one argument block (64-bit slots) and touches no interpreter, so the tape
can call it without the lock, and each thread of the team can take its share:

    @native
    def scale_loop(block):
        count = integer(block, 0)
        factor = real(block, 1)
        source, target = float32s(block, 2), float32s(block, 3)
        begin, end = share(block, count)
        for i in range(begin, end):
            target[i] = factor * source[i]

    call = bind(scale_loop, (1000, 0.5, source_address, target_address), threads=2)

The names below are what such a body may use. They have no Python meaning of their own: numba's
versions take their place when the function is first needed, because importing numba takes a
quarter of a second. Compiled code is cached beside the source (or in the user's cache folder).
"""

from __future__ import annotations

import struct
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.backend.call import NativeCall
from mxrun.backend.team import openmp

# Slots in front of the arguments: the address of omp_get_thread_num and the size of the team.
_HEADER_SLOTS = 2
# Loops over fewer elements than this are faster on one thread (waking a team takes about 1 us).
ELEMENTS_PER_THREAD = 4096

Block = Any


def integer(block: Block, index: int) -> int:
    """Argument `index` as a 64-bit integer."""
    raise TypeError("only inside a native function")


def real(block: Block, index: int) -> float:
    """Argument `index` as a float32 value."""
    raise TypeError("only inside a native function")


def float32s(block: Block, index: int) -> Any:
    """Argument `index` as a pointer to float32 elements."""
    raise TypeError("only inside a native function")


def int32s(block: Block, index: int) -> Any:
    """Argument `index` as a pointer to int32 elements."""
    raise TypeError("only inside a native function")


def uint8s(block: Block, index: int) -> Any:
    """Argument `index` as a pointer to bytes."""
    raise TypeError("only inside a native function")


def share(block: Block, count: int) -> tuple[int, int]:
    """The calling thread's part [begin, end) of `count` elements, cut at multiples of 16."""
    raise TypeError("only inside a native function")


@dataclass(frozen=True)
class NativeFunction:
    """A body that is compiled when its address is first asked for."""

    body: Callable[[Block], None]

    @cached_property
    def address(self) -> int:
        """The compiled function's address: `void f(int64_t *block)`."""
        return int(self._compiled.address)

    @cached_property
    def _compiled(self) -> Any:
        import numba

        vocabulary = _vocabulary()
        scope = {**self.body.__globals__, **vocabulary}
        native_body = types.FunctionType(self.body.__code__, scope, self.body.__name__)
        native_body.__module__ = self.body.__module__
        native_body.__qualname__ = self.body.__qualname__
        signature = numba.types.void(numba.types.CPointer(numba.types.int64))
        return numba.cfunc(signature, cache=True, error_model="numpy")(native_body)


def native(body: Callable[[Block], None]) -> NativeFunction:
    """Decorator: make a native function of a body written in this module's vocabulary."""
    return NativeFunction(body)


def bind(function: NativeFunction, arguments: tuple[int | float, ...], threads: int) -> NativeCall:
    """Pack the argument block; with more than one thread the team runs the function together."""
    runtime = openmp() if threads > 1 else None
    header = (runtime.thread_number, threads) if runtime is not None else (0, 1)
    block: npt.NDArray[np.int64] = np.array([*header, *map(_slot, arguments)], np.int64)
    address = block.ctypes.data
    owner = (block, function)
    if runtime is None:
        return NativeCall(function.address, (address,), owner)
    return NativeCall(runtime.parallel, (function.address, address, threads, 0), owner)


def team_for(elements: int, threads: int) -> int:
    """How many of `threads` a loop over `elements` is worth."""
    return max(1, min(threads, elements // ELEMENTS_PER_THREAD))


def _slot(value: int | float) -> int:
    if isinstance(value, float):
        return int(struct.unpack("<i", struct.pack("<f", value))[0])
    return value


@cache
def _vocabulary() -> dict[str, Any]:
    """numba's versions of the names a native body may use."""
    from llvmlite import ir
    from numba import njit, types
    from numba.core import cgutils
    from numba.extending import intrinsic

    def slot(context: Any, builder: Any, arguments: Any, offset: int) -> Any:
        block, index = arguments
        position = builder.add(index, ir.Constant(index.type, offset))
        return builder.load(builder.gep(block, [position]))

    def pointer_reader(element: Any) -> Any:
        @intrinsic
        def read_pointer(typing_context: Any, block: Any, index: Any) -> Any:
            result = types.CPointer(element)

            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                value = slot(context, builder, arguments, _HEADER_SLOTS)
                return builder.inttoptr(value, context.get_value_type(result))

            return result(block, types.int64), generate

        return read_pointer

    @intrinsic
    def integer(typing_context: Any, block: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return slot(context, builder, arguments, _HEADER_SLOTS)

        return types.int64(block, types.int64), generate

    @intrinsic
    def real(typing_context: Any, block: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.trunc(slot(context, builder, arguments, _HEADER_SLOTS), ir.IntType(32))
            return builder.bitcast(value, ir.FloatType())

        return types.float32(block, types.int64), generate

    @intrinsic
    def thread_number(typing_context: Any, block: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            address = builder.load(arguments[0])
            number = cgutils.alloca_once_value(builder, ir.Constant(ir.IntType(64), 0))
            with builder.if_then(builder.icmp_unsigned("!=", address, address.type(0))):
                function = ir.FunctionType(ir.IntType(32), [])
                pointer = builder.inttoptr(address, function.as_pointer())
                builder.store(builder.sext(builder.call(pointer, []), ir.IntType(64)), number)
            return builder.load(number)

        return types.int64(block), generate

    @njit
    def share(block: Any, count: Any) -> Any:
        team = block[1]
        # A chunk is a multiple of 16 elements, so that no two threads write one cache line.
        chunk = (count + team * 16 - 1) // (team * 16) * 16
        begin = min(count, thread_number(block) * chunk)
        return begin, min(count, begin + chunk)

    return {
        "integer": integer,
        "real": real,
        "float32s": pointer_reader(types.float32),
        "int32s": pointer_reader(types.int32),
        "uint8s": pointer_reader(types.uint8),
        "share": share,
    }
