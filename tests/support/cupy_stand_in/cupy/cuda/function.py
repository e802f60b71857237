"""cupy.cuda.function: modules of PTX text, and kernels on emulated threads."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np
from gpu_emulator.emulated import emulated

from cupy.cuda.card import (
    CAPTURE_UNSUPPORTED,
    CARD,
    ILLEGAL_ADDRESS,
    INVALID_CONFIGURATION,
    CUDARuntimeError,
)
from mxrun.codegen.jit import NativeFunction
from mxrun.codegen.map_loop import MapLoop

_MOST_BLOCKS, _MOST_THREADS = 2**31 - 1, 1024
_ENTRY = re.compile(r"\.visible \.entry (\w+)\(")
_KINDS = {"float32": np.float32}


def _code_of(symbol: str) -> Any:
    """Return the function or map with a kernel of that name."""
    # Objects that were frozen are not listed.
    gc.unfreeze()
    for each in gc.get_objects():
        # Not isinstance, which imports the modules that lazy ones stand for.
        if issubclass(type(each), (NativeFunction, MapLoop)):
            kernel = each.__dict__.get("gpu_kernel")
            if kernel is not None and kernel.symbol == symbol:
                return each
    raise AssertionError(f"no compiled function has the kernel {symbol}")


class Module:
    """PTX text whose entries are kernels."""

    def __init__(self) -> None:
        self._entries: list[str] = []

    def load(self, cubin: bytes) -> None:
        """Compile the text."""
        CARD.require()
        CARD.require_current()
        CARD.forbid_in_capture()
        assert isinstance(cubin, bytes)
        CARD.count("module load")
        self._entries = _ENTRY.findall(cubin.decode())

    def get_function(self, name: str) -> Function:
        """Return a kernel."""
        assert name in self._entries, f"{name} is no entry of the module: {self._entries}"
        return Function(self, name)


class Function:
    """Kernel whose optimised module, compiled for the CPU, runs on the card's memory."""

    def __init__(self, module: Module, name: str) -> None:
        self.module, self._name = module, name
        self._code = _code_of(name)
        self._kernel = self._code.gpu_kernel

    def __call__(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        args: tuple[Any, ...],
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Launch the kernel."""
        CARD.require()
        CARD.require_current()
        assert stream is not None, "the null stream is not that of the programs"
        if not (0 < grid[0] <= _MOST_BLOCKS and 0 < block[0] <= _MOST_THREADS):
            raise CUDARuntimeError(INVALID_CONFIGURATION)
        kernel, tasks = self._kernel, int(args[-1])
        assert (grid[1:], block) == ((1, 1), (kernel.threads, 1, 1))
        assert grid[0] == -(-tasks // kernel.tasks_per_block)
        assert len(args) == len(kernel.parameters)
        for value, kind in zip(args, kernel.parameters, strict=True):
            assert type(value) is _KINDS.get(kind, np.int64), f"{self._name}: {value!r} as {kind}"
        if stream.capture is not None and self._is_listed(CARD.settings.uncapturable):
            stream.capture.is_valid = False
            raise CUDARuntimeError(CAPTURE_UNSUPPORTED)
        # Copied now: a graph has the arguments with which it was captured.
        slots = [int(value.view(f"i{value.itemsize}")) for value in args[:-1]]
        pointers = [
            int(value)
            for value, kind in zip(args, kernel.parameters, strict=True)
            if kind.startswith(("pointer", "table")) and value
        ]
        fails = self._is_listed(CARD.settings.fails)

        def run() -> None:
            CARD.count("kernel")
            if (fails and CARD.is_over()) or not all(map(CARD.has, pointers)):
                CARD.fail(ILLEGAL_ADDRESS)
                return
            with CARD.working():
                emulated(kernel, False).run(slots, tasks)

        stream.submit(run)

    def _is_listed(self, parts: tuple[str, ...]) -> bool:
        body = getattr(self._code, "body", None)
        name = self._name if body is None else body.__qualname__
        return any(part in name for part in parts)
