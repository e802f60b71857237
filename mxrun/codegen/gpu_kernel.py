"""Kernels of native functions and maps for a GPU: the second face of `NativeCode`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class GpuKernel:
    """Kernel that runs the tasks of a loop on a GPU.

    symbol: entry of the PTX text. parameters: kinds of the kernel's parameters in order, names of
    `sequential.kinds.ARGUMENTS`; a table is a pointer to 64-bit slots in the card's memory; the
    last one is the number of tasks. ptx: text of one module. module: the optimised LLVM module
    from which it was generated. threads: of a block. tasks_per_block: tasks that a block runs; the
    threads of surplus tasks in the last block return at once.
    """

    symbol: str
    parameters: tuple[str, ...]
    ptx: str
    module: str
    threads: int
    tasks_per_block: int


def kernel_of(symbol: str, parameters: Iterable[str]) -> GpuKernel:
    """Return the kernel of a loop with these parameters, besides the number of tasks."""
    entry = f".visible .entry {symbol}()"
    return GpuKernel(symbol, (*parameters, "int64"), entry, "", 128, 8)
