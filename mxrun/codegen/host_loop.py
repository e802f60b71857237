"""Native functions that Python calls directly, on one thread."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mxrun.codegen.arguments import Arguments, slot_of
from mxrun.codegen.jit import ALONE, NativeFunction, require_arguments


class HostLoop:
    """Native function with its arguments, packed once.

    For loops of a few microseconds the call holds the interpreter lock, because getting it back
    from a busy thread costs a thousand times more. unlocked: release the lock, for a long loop.
    Raises TypeError if the arguments are not of the class that the function declares. call: the
    fastest way to run the function; the loop must outlive it.
    """

    call: Callable[[], None]

    def __init__(
        self, function: NativeFunction, arguments: Arguments, unlocked: bool = False
    ) -> None:
        require_arguments(function, arguments)
        block = arguments.packed()
        self._bind(function.address, (block.ctypes.data, *ALONE), arguments, block, unlocked)

    def _bind(
        self,
        function: int,
        values: tuple[int, ...],
        arguments: Arguments,
        block: npt.NDArray[np.int64],
        unlocked: bool,
    ) -> None:
        """Prepare the C call `function(*values)`; `block` holds the arguments."""
        kind = ctypes.CFUNCTYPE if unlocked else ctypes.PYFUNCTYPE
        self.call = partial(kind(None, *[ctypes.c_void_p] * len(values))(function), *values)
        self._block = block
        # References to the arrays whose addresses the block holds.
        self._values: dict[str, Any] = {
            name: getattr(arguments, name) for name in arguments.kinds()
        }
        self._slots = {name: number for number, name in enumerate(self._values)}

    def __call__(self) -> None:
        """Run the function."""
        self.call()

    def set(self, name: str, value: int | npt.NDArray[Any] | None) -> None:
        """Replace one integer or array among the arguments; None is a pointer without memory."""
        self._block[self._slots[name]] = slot_of(value)
        self._values[name] = value


HostLoops: TypeAlias = Callable[[NativeFunction, Arguments, int], HostLoop]
"""Makes the loop of a function, its arguments and the number of elements that it processes; a
device's loops may be run by several threads."""


def loop_on_one_thread(function: NativeFunction, arguments: Arguments, elements: int) -> HostLoop:
    """Return the loop on one thread, for any number of elements."""
    return HostLoop(function, arguments)
