"""Loop of an elementwise map in one form: a function of its own, or part of a native function."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass
from mxrun.base.locks import FIRST_TIME
from mxrun.base.once import cached_property
from mxrun.codegen import object_cache
from mxrun.codegen.gpu_kernel import GpuKernel, cached_kernel
from mxrun.codegen.scalar_value import LoopForm, ScalarGraph

_ADDRESSES: dict[str, int] = {}


@dataclass(frozen=True, eq=False)
class MapLoop:
    """Machine code of one form of a map, compiled at the first access to `address`.

    Native functions that are parametrised by a map (`jit.NativeFunction.with_maps`) contain its
    code instead. Loops of equal computations are equal.
    """

    graph: ScalarGraph
    results: tuple[int, ...]
    form: LoopForm

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapLoop) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @cached_property
    def text(self) -> str:
        """Everything that the machine code depends on, besides the processor."""
        return f"{self.form} {self.results}\n{self.graph.describe()}"

    @cached_property
    def gpu_kernel(self) -> GpuKernel:
        """The map as a kernel of graphics cards."""

        def compiled(symbol: str) -> GpuKernel:
            from mxrun.codegen.map_ptx import compile_map_kernel

            return compile_map_kernel(symbol, self.graph, self.results, self.form)

        return cached_kernel(self.text, compiled)

    @cached_property
    def address(self) -> int:
        """Address of the function, see `jit.NativeCode`."""
        key = object_cache.key_of(self.text)
        if key not in _ADDRESSES:
            compiled = object_cache.find(key)
            if compiled is None:
                # Imported late because it loads LLVM's bindings.
                from mxrun.codegen.scalar_llvm import compile_map

                with FIRST_TIME:
                    compiled = compile_map(f"map_{key}", self.graph, self.results, self.form)
                object_cache.store(key, compiled)
            _ADDRESSES[key] = object_cache.link(compiled)
        return _ADDRESSES[key]
