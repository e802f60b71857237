"""Launches: what a bound kernel asks a device to run, in terms of handles to the device's memory.

A launch is a frozen value that names no address: `Kernel.bind` returns launches, and a device turns
them into its own form, once. A device that cannot run a kind of launch refuses it then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.tensor import TensorSpec
from mxrun.codegen.arguments import Arguments
from mxrun.codegen.jit import NativeCode

Array = npt.NDArray[Any]


class Memory:
    """Block of `nbytes` in a device's memory, which only its device can access."""

    nbytes: int


class TensorPlace(Protocol):
    """Beginning of a contiguous tensor: `offset` bytes into a device's memory, such as a handle."""

    @property
    def memory(self) -> Memory:
        """Memory that holds the tensor."""

    @property
    def offset(self) -> int:
        """Bytes from the beginning of the memory."""


@dataclass(frozen=True)
class Handle:
    """Place of a tensor in a device's memory.

    offset: in bytes, from the beginning of the memory. pitch: for a tensor that is a slice of a
    parent buffer, the elements from row to row; 0 for a contiguous tensor. strides: bytes by which
    every iteration of each enclosing `Repeat` moves the tensor, the outermost first; one for each.
    """

    memory: Memory
    offset: int
    pitch: int = 0
    strides: tuple[int, ...] = ()

    def __add__(self, nbytes: int) -> Handle:
        """Return the handle of the byte that is `nbytes` further."""
        return replace(self, offset=self.offset + nbytes) if nbytes else self

    def within(self, stride: int) -> Handle:
        """Return the handle for the program of a `Repeat` that moves it by `stride` bytes."""
        return replace(self, strides=(*self.strides, stride))

    def is_at(self, other: Handle) -> bool:
        """Return whether both begin at the same byte, in every iteration."""
        same = self.memory is other.memory and self.offset == other.offset
        return same and self.strides == other.strides


class Views(Protocol):
    """Function of a device that returns a tensor's memory as an array, without a copy."""

    def __call__(self, handle: Handle, spec: TensorSpec) -> Array:
        """Return a writable array; raises InternalError unless the layout is plain."""


@dataclass(frozen=True)
class PythonLaunch:
    """Run of a NumPy or user-written body.

    prepare: given a function that views tensors as arrays, returns the function to run. only_read:
    handles of tensors that the body does not write.
    """

    prepare: Callable[[Views], Callable[[], None]]
    only_read: tuple[Handle, ...] = ()


# Argument of a generated map: a tensor, an array of constants, or the bits of a number.
MapArgument: TypeAlias = Handle | Array | float | int | None


@dataclass(frozen=True)
class LoopLaunch:
    """Run of a compiled loop, cut into `tasks`, which any thread may run in any order.

    arguments: with handles for addresses; of a generated map a tuple.
    """

    function: NativeCode
    arguments: Arguments | tuple[MapArgument, ...]
    tasks: int


class ProviderLaunch:
    """Run of a library's kernel; the device that the library belongs to knows its subclasses."""

    def record(self) -> Mapping[str, str]:
        """Return what the library made for it and may make otherwise another time, by its key."""
        return {}


@dataclass(frozen=True)
class Repeat:
    """Program that runs `count` times; its handles move by their strides.

    limit: handle of an int64 number; at most so many iterations run, the first ones, or the last
    ones if `from_end`.
    """

    count: int
    program: tuple[Launch, ...]
    limit: Handle | None = None
    from_end: bool = False

    def rank(self, iteration: int) -> int:
        """Return the number of iterations that are preferred to one, given a limit."""
        return self.count - 1 - iteration if self.from_end else iteration


Launch: TypeAlias = PythonLaunch | LoopLaunch | ProviderLaunch | Repeat


def runs_python(launch: Launch) -> bool:
    """Return whether a launch, or one that it repeats, runs a Python body."""
    if isinstance(launch, Repeat):
        return any(map(runs_python, launch.program))
    return isinstance(launch, PythonLaunch)
