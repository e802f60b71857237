"""LLVM code generation for maps: a graph of machine operations as a loop over vectors.

The loop's body uses explicit vectors, so that nothing depends on an optimiser's vectorisation, and
code generation takes only a few milliseconds. The elements after the last full vector are copied to
a small buffer and processed by the same body.

A map's function takes an argument block like every native function (see `jit`): number of elements,
the outputs' addresses, the operands' addresses, the parameters' bits. Each task processes its own
part of the elements. All operands of a vector are read before its outputs are
written, so that an output may have the address of an operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from mxrun.codegen.llvm_block import share
from mxrun.codegen.llvm_target import (
    adds_and_multiplies_apart,
    call_function,
    has_half_width_registers,
    target_machine,
)
from mxrun.codegen.map_body import MapGenerator
from mxrun.codegen.object_cache import CompiledObject
from mxrun.codegen.scalar_instructions import AVX512
from mxrun.codegen.scalar_lowering import lowered
from mxrun.codegen.scalar_operations import (
    INDEX,
    LANES,
    SIZES,
    TYPES,
    WORD,
    instructions,
    vector_of,
)
from mxrun.codegen.scalar_value import (
    LoopForm,
    ScalarGraph,
)

# Distance, in bytes, of prefetching for writes: Intel's processors prefetch reads themselves, but
# not writes. With it exp over 3 million floats takes 0.413 ms instead of 0.447. Where operands are
# overwritten, it only costs: sgd_mom_update of 3 million floats takes 1.12 ms, without it 0.93.
# AMD's slow down anyway: a * 2 takes 0.24 ms instead of 0.16.
AHEAD = 2048
_LINE = 64
# Attributes of a function whose vectors are divided into registers of 256 bits.
_NARROW = ('"min-legal-vector-width"="0"', '"prefer-vector-width"="256"')


def compile_map(
    symbol: str, graph: ScalarGraph, results: Sequence[int], form: LoopForm
) -> CompiledObject:
    """Compile the loop over a graph that stores the nodes `results` to the outputs.

    symbol: name of the function, which must be unique in a process.
    """
    module = map_module(symbol, graph, results, form)
    return CompiledObject(symbol, _machine().emit_object(module))


def assembly(graph: ScalarGraph, results: Sequence[int], form: LoopForm) -> str:
    """Return the loop as assembly text, for inspection."""
    return str(_machine().emit_assembly(map_module("map_loop", graph, results, form)))


def map_module(symbol: str, graph: ScalarGraph, results: Sequence[int], form: LoopForm) -> Any:
    """Return LLVM's module of the loop, the function `symbol`."""
    module = ir.Module(symbol)
    _LoopGenerator(module, symbol, *lowered(graph, results, instructions()), form).build()
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    return parsed


def _has_simple_operations(graph: ScalarGraph) -> bool:
    """Return whether a loop has no functions that are made of many operations."""
    return not any(node.operation in (*AVX512, "rarely") for node in graph.nodes)


def _machine() -> Any:
    # Some processors' descriptions make LLVM avoid the widest registers because of their lower
    # clock.
    return target_machine(2, "-prefer-256-bit")


class _LoopGenerator(MapGenerator):
    """Builder of one loop's function."""

    def __init__(
        self, module: Any, symbol: str, graph: ScalarGraph, results: Sequence[int], form: LoopForm
    ) -> None:
        super().__init__(module, symbol, graph, results, form)
        if has_half_width_registers() and _has_simple_operations(graph):
            # llvmlite knows only attributes without values.
            set.update(self.function.attributes, _NARROW)
        self.begin(LANES)

    def build(self) -> None:
        """Build the complete function."""
        builder, form = self.builder, self.form
        cells = [self._cell(TYPES[dtype]) for dtype in self.moving(form.memory)]
        begin, end = share(builder, self.slot(0))
        tensors = self.tensors()
        self.fixed_nodes(tensors[self.outputs :])
        moving = self.moving(tensors)
        entry = builder.block
        head, next_vector, done = (self.new_block(name) for name in ("head", "next_vector", "done"))
        builder.branch(head)

        builder.position_at_end(head)
        at = builder.phi(WORD)
        at.add_incoming(begin, entry)
        places = [builder.gep(place, [at]) for place in moving]
        rest = builder.sub(end, at)
        builder.cbranch(builder.icmp_signed(">", rest, ir.Constant(WORD, 0)), next_vector, done)

        builder.position_at_end(next_vector)
        last = self._vector(places, cells, rest)
        at.add_incoming(builder.add(at, ir.Constant(WORD, LANES)), last)
        builder.branch(head)
        builder.position_at_end(done)
        builder.ret_void()

    def _cell(self, kind: Any) -> Any:
        """Allocate a buffer for one vector, initialised with 0.

        Previous content, such as denormal numbers, could slow the arithmetic down.
        """
        room = self.builder.alloca(vector_of(kind))
        self.builder.store(ir.Constant(vector_of(kind), None), room)
        return self.builder.bitcast(room, kind.as_pointer())

    def _vector(self, places: Sequence[Any], cells: Sequence[Any], rest: Any) -> Any:
        """Generate the code of one vector, with `rest` > 0 elements left; return the last block.

        An incomplete vector is computed in the buffers `cells`.
        """
        builder, begin = self.builder, self.builder.block
        fill, body, drain, after = (
            self.new_block(name) for name in ("fill", "body", "drain", "after")
        )
        is_full = builder.icmp_signed(">=", rest, ir.Constant(WORD, LANES))
        builder.cbranch(is_full, body, fill)

        builder.position_at_end(fill)
        pairs = list(zip(places, cells, strict=True))
        read = [pair for pair, adds in zip(pairs, self.form.adds, strict=False) if adds]
        self._copy([*read, *pairs[self.outputs :]], rest)
        filled = builder.block
        builder.branch(body)

        builder.position_at_end(body)
        meeting = [builder.phi(place.type) for place in places]
        for phi, place, cell in zip(meeting, places, cells, strict=True):
            phi.add_incoming(place, begin)
            phi.add_incoming(cell, filled)
        self._body([builder.bitcast(p, vector_of(p.type.pointee).as_pointer()) for p in meeting])
        builder.cbranch(is_full, after, drain)

        builder.position_at_end(drain)
        self._copy([(cell, place) for place, cell in pairs[: self.outputs]], rest)
        builder.branch(after)
        builder.position_at_end(after)
        return after

    def _body(self, places: Sequence[Any]) -> None:
        """Compute the vectors at the outputs' places, the first ones, from those at the others."""
        count = self.outputs
        if not (self.form.in_place or adds_and_multiplies_apart()):
            for place, dtype in zip(places[:count], self.form.memory, strict=False):
                self._announce(place, dtype)
        self.store(self.compute(places), places)

    def _announce(self, place: Any, dtype: str) -> None:
        """Prefetch for writing the cache lines `AHEAD` bytes further on."""
        builder, byte = self.builder, ir.IntType(8).as_pointer()
        start = builder.bitcast(place, byte)
        for line in range(0, LANES * SIZES[dtype], _LINE):
            ahead = builder.gep(start, [ir.Constant(WORD, AHEAD + line)])
            # Write access, high locality, data cache.
            actual = [ahead, *(ir.Constant(INDEX, number) for number in (1, 3, 1))]
            call_function(builder, "llvm.prefetch.p0", ir.VoidType(), actual)

    def _copy(self, pairs: Sequence[tuple[Any, Any]], count: Any) -> None:
        """Copy `count` > 0 elements of each pair, one after the other."""
        if not pairs:
            return
        builder, before = self.builder, self.builder.block
        loop, after = (self.new_block(name) for name in ("copy", "copied"))
        builder.branch(loop)
        builder.position_at_end(loop)
        i = builder.phi(WORD)
        i.add_incoming(ir.Constant(WORD, 0), before)
        for origin, goal in pairs:
            builder.store(builder.load(builder.gep(origin, [i])), builder.gep(goal, [i]))
        following = builder.add(i, ir.Constant(WORD, 1))
        i.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
        builder.position_at_end(after)
