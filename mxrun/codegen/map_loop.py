"""Loop of an elementwise map in one form: a function of its own, or part of a native function."""

from __future__ import annotations

from dataclasses import dataclass

from mxrun.base.dtype import FLOAT32
from mxrun.base.once import cached_property
from mxrun.codegen import object_cache
from mxrun.codegen.gpu_kernel import GpuKernel, kernel_of
from mxrun.codegen.scalar_value import LoopForm, ScalarGraph, number_dtype

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
    def address(self) -> int:
        """Address of the function, see `jit.NativeCode`."""
        key = object_cache.key_of(self.text)
        if key not in _ADDRESSES:
            compiled = object_cache.find(key)
            if compiled is None:
                # Imported late because it loads LLVM's bindings.
                from mxrun.codegen.scalar_llvm import compile_map

                compiled = compile_map(f"map_{key}", self.graph, self.results, self.form)
                object_cache.store(key, compiled)
            _ADDRESSES[key] = object_cache.link(compiled)
        return _ADDRESSES[key]

    @cached_property
    def gpu_kernel(self) -> GpuKernel:
        """Kernel of a GPU: number of elements, addresses of the tensors, bits of the parameters."""
        number = number_dtype(self.form.dtype)
        word = number if number == FLOAT32 else "int64"
        words = [word for node in self.graph.nodes if node.operation == "parameter"]
        tensors = (f"pointer to {dtype}" for dtype in self.form.memory)
        return kernel_of(f"map_{object_cache.key_of(self.text)}", ("int64", *tensors, *words))
