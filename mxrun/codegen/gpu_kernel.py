"""Kernels of graphics cards: PTX of native functions and maps, in the user's cache folder."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import asdict

from mxrun.base.dataclass import dataclass
from mxrun.base.locks import FIRST_TIME
from mxrun.codegen import object_cache
from mxrun.codegen.compilation import compilation
from mxrun.codegen.target import CodeTarget, generating_for

_KIND = "ptx"
# Of kernels without a key: a card knows them by their symbols.
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class GpuKernel:
    """Kernel of one launch.

    symbol: entry of the text. parameters: kinds of the kernel's parameters in order, by their names
    in `arguments`; a table is a pointer to 64-bit slots in the card's memory. The last one is the
    number of tasks. ptx: text of one module, which the driver compiles. module: the optimised LLVM
    module from which it was generated. threads: of a block; tasks_per_block: tasks that one block
    runs, so that the grid has ceil(tasks / tasks_per_block) blocks. Threads without a task return
    at once.
    """

    symbol: str
    parameters: tuple[str, ...]
    ptx: str
    module: str
    threads: int
    tasks_per_block: int


def cached_kernel(text: str | None, compiled: Callable[[str], GpuKernel]) -> GpuKernel:
    """Return the kernel that `compiled` makes, given a name for it, unless it is cached.

    text: everything that the kernel depends on, besides the code generator, its libraries and the
    oldest card; None if that is not known.
    """
    with generating_for(CodeTarget.NVPTX):
        key = None if text is None else object_cache.key_of(text)
        found = None if key is None else object_cache.read(_KIND, key)
        if found is not None:
            fields = json.loads(found)
            return GpuKernel(**{**fields, "parameters": tuple(fields["parameters"])})
        with FIRST_TIME, compilation():
            kernel = compiled(f"kernel_{key or next(_NUMBERS)}")
        if key is not None:
            object_cache.write(_KIND, key, json.dumps(asdict(kernel)).encode())
    return kernel
