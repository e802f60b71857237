"""LLVM code of maps on graphics cards: each thread computes four elements at a time.

Neighbouring threads compute neighbouring vectors, which are loaded and stored by single
instructions where all tensors are aligned; where one is not, and after the last full vector, a
thread computes single elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from mxrun.codegen.gpu_kernel import GpuKernel
from mxrun.codegen.kernel_entry import CODE, kernel_of
from mxrun.codegen.map_body import MapGenerator
from mxrun.codegen.scalar_lowering import lowered
from mxrun.codegen.scalar_operations import SIZES, WORD, instructions, vector_of
from mxrun.codegen.scalar_value import LoopForm, ScalarGraph
from mxrun.codegen.sequential.kinds import INT64
from mxrun.codegen.vectors import LANES

VECTOR = 4


def compile_map_kernel(
    symbol: str, graph: ScalarGraph, results: Sequence[int], form: LoopForm
) -> GpuKernel:
    """Compile a map to the kernel `symbol`, see `scalar_llvm.compile_map`.

    A task is a vector of each of the threads of half a warp.
    """
    module = ir.Module(symbol)
    add_thread_map(module, CODE, graph, results, form)
    pointers = (f"pointer to {dtype}" for dtype in form.memory)
    # The bits of a parameter are an integer.
    words = [INT64.name for node in graph.nodes if node.operation == "parameter"]
    return kernel_of(symbol, module, (INT64.name, *pointers, *words), LANES, is_compact=False)


def add_thread_map(
    module: Any, symbol: str, graph: ScalarGraph, results: Sequence[int], form: LoopForm
) -> None:
    """Add the function of a map to a module; its tasks are threads."""
    own, nodes = lowered(graph, results, instructions())
    _ThreadGenerator(module, symbol, own, nodes, form).build()


class _ThreadGenerator(MapGenerator):
    """Builder of the function of one thread of several."""

    def build(self) -> None:
        """Build the complete function."""
        count, tensors = self.slot(0), self.tensors()
        full = self.builder.and_(count, WORD(-VECTOR))
        full = self.builder.select(self._are_aligned(tensors), full, WORD(0))
        self._loop(tensors, WORD(0), full, VECTOR)
        self._loop(tensors, full, count, 1)
        self.builder.ret_void()
        self.function.linkage = "internal"

    def _are_aligned(self, tensors: Sequence[Any]) -> Any:
        """Return whether the addresses of all moving tensors are those of vectors."""
        builder, rest = self.builder, WORD(0)
        dtypes = self.moving(self.form.memory)
        for tensor, dtype in zip(self.moving(tensors), dtypes, strict=True):
            beyond = builder.and_(builder.ptrtoint(tensor, WORD), WORD(VECTOR * SIZES[dtype] - 1))
            rest = builder.or_(rest, beyond)
        return builder.icmp_unsigned("==", rest, WORD(0))

    def _loop(self, tensors: Sequence[Any], first: Any, end: Any, lanes: int) -> None:
        """Generate the loop over the thread's vectors between two elements."""
        builder = self.builder
        _, thread, threads, _ = self.function.args
        self.begin(lanes, aligned=lanes)
        self.fixed_nodes(tensors[self.outputs :])
        entry = builder.block
        head, body, done = (self.new_block(name) for name in ("head", "body", "done"))
        start = builder.add(first, builder.mul(thread, WORD(lanes)))
        builder.branch(head)

        builder.position_at_end(head)
        at = builder.phi(WORD)
        at.add_incoming(start, entry)
        builder.cbranch(builder.icmp_signed("<", at, end), body, done)

        builder.position_at_end(body)
        places = [
            builder.bitcast(
                builder.gep(tensor, [at]), vector_of(tensor.type.pointee, lanes).as_pointer()
            )
            for tensor in self.moving(tensors)
        ]
        self.store(self.compute(places), places)
        at.add_incoming(builder.add(at, builder.mul(threads, WORD(lanes))), builder.block)
        builder.branch(head)
        builder.position_at_end(done)
