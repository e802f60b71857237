"""Block kernels from Python source, see `blocks`; a task of a launch is a block of threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import InternalError
from mxrun.base.once import cached_property
from mxrun.codegen.gpu_kernel import GpuKernel
from mxrun.codegen.jit import NativeFunction


@dataclass(frozen=True)
class BlockFunction(NativeFunction):
    """Body that every thread of a block runs; threads: number of them."""

    threads: int = 0

    @cached_property
    def address(self) -> int:
        """Raise InternalError: a processor runs no blocks."""
        raise InternalError(f"{self.body.__qualname__} is code for the blocks of a GPU")

    @property
    def _options(self) -> tuple[object, ...]:
        return *super()._options, self.threads

    def compile_kernel(self, symbol: str) -> GpuKernel:
        """Compile the function to the kernel `symbol`, of which a block is a task."""
        from mxrun.codegen.sequential.compiler import compile_block_kernel

        return compile_block_kernel(symbol, self.source, self.threads)


def block_of(threads: int) -> Callable[[Callable[[Any], None]], BlockFunction]:
    """Decorator that makes a block kernel of so many threads, see `blocks`."""
    return lambda body: BlockFunction(body, threads=threads)
