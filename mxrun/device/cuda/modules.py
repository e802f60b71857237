"""Modules of kernels on a card: the driver compiles the PTX text of each once."""

from __future__ import annotations

from typing import Any

from mxrun.codegen.gpu_kernel import GpuKernel
from mxrun.device.cuda.queue import Queue


class Modules:
    """Kernels that are loaded on a card, by their symbols."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._functions: dict[str, Any] = {}

    def function(self, kernel: GpuKernel) -> Any:
        """Return CuPy's function of a kernel, which keeps its module."""
        found = self._functions.get(kernel.symbol)
        if found is None:
            queue = self._queue
            queue.use()
            with queue.named(f"loading the kernel {kernel.symbol}"):
                module = queue.cupy.function.Module()
                module.load(kernel.ptx.encode())
                found = module.get_function(kernel.symbol)
            self._functions[kernel.symbol] = found
        return found
