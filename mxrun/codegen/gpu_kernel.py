"""Kernels for GPUs as values: the text of a module, and how a launch is cut into blocks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuKernel:
    """Kernel of one loop, for any NVIDIA card.

    symbol: entry of the PTX text. parameters: kinds of its parameters, of `kinds.ARGUMENTS`; a
    table is a pointer to 64-bit slots, and the last one is the number of tasks. ptx: text of one
    module. module: the optimised LLVM module it was generated from. threads: of a block.
    tasks_per_block: tasks that a block runs; a launch has ceil(tasks / tasks_per_block) blocks.
    """

    symbol: str
    parameters: tuple[str, ...]
    ptx: str
    module: str
    threads: int
    tasks_per_block: int
