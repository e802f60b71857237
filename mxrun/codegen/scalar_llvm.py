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

from mxrun.base.dtype import BFLOAT16
from mxrun.codegen.llvm_bfloat16 import rounded, widened
from mxrun.codegen.llvm_block import function_of, share, slot
from mxrun.codegen.llvm_target import (
    adds_and_multiplies_apart,
    call_function,
    has_half_width_registers,
    target_machine,
)
from mxrun.codegen.object_cache import CompiledObject
from mxrun.codegen.scalar_instructions import AVX512
from mxrun.codegen.scalar_lowering import lowered
from mxrun.codegen.scalar_operations import (
    INDEX,
    LANES,
    SIZES,
    TYPES,
    WORD,
    OperationGenerator,
    instructions,
    vector_of,
)
from mxrun.codegen.scalar_value import (
    FLOATS,
    LoopForm,
    ScalarGraph,
    ScalarNode,
    rare_contexts,
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


class _LoopGenerator:
    """Builder of one loop's function."""

    def __init__(
        self, module: Any, symbol: str, graph: ScalarGraph, results: Sequence[int], form: LoopForm
    ) -> None:
        self.module, self.graph, self.results, self.form = module, graph, results, form
        self.function = function_of(module, symbol)
        self.builder = ir.IRBuilder(self.function.append_basic_block())
        if has_half_width_registers() and _has_simple_operations(graph):
            # llvmlite knows only attributes without values.
            set.update(self.function.attributes, _NARROW)
        self.operations = OperationGenerator(self.builder)
        self.values: dict[int, Any] = {}
        self.outputs = len(results)
        self.contexts = rare_contexts(graph, results)

    def build(self) -> None:
        """Build the complete function."""
        builder, form = self.builder, self.form
        kinds = [TYPES[dtype] for dtype in form.memory]
        # Step of every tensor: the outputs come first.
        steps = (*(1,) * self.outputs, *form.steps)
        cells = [self._cell(kind) for kind, step in zip(kinds, steps, strict=True) if step]
        begin, end = share(builder, self._slot(0))
        tensors = [
            builder.inttoptr(self._slot(1 + i), kind.as_pointer()) for i, kind in enumerate(kinds)
        ]
        self._fixed_nodes(tensors[self.outputs :])
        moving = [tensor for tensor, step in zip(tensors, steps, strict=True) if step]
        entry = builder.block
        head, next_vector, done = (
            self._new_block(name) for name in ("head", "next_vector", "done")
        )
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
            self._new_block(name) for name in ("fill", "body", "drain", "after")
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
        read = zip(self.form.memory[count:], self.form.steps, strict=True)
        moving = [dtype for dtype, step in read if step]
        if not (self.form.in_place or adds_and_multiplies_apart()):
            for place, dtype in zip(places[:count], self.form.memory, strict=False):
                self._announce(place, dtype)
        self._moving_nodes([*map(self._loaded, places[count:], moving)])
        stored = [self._stored(output, place) for output, place in enumerate(places[:count])]
        for value, place, dtype in zip(stored, places, self.form.memory, strict=False):
            self.builder.store(value, place, align=SIZES[dtype])

    def _stored(self, output: int, place: Any) -> Any:
        """Return an output's vector in its type in memory, after an add-to request's addition."""
        builder, dtype = self.builder, self.form.memory[output]
        value = self.values[self.results[output]]
        if self.form.adds[output]:
            if dtype == BFLOAT16:
                # The added value is rounded exactly as a written one would be.
                value = widened(builder, rounded(builder, value))
            add = builder.fadd if self.form.output_dtypes[output] in FLOATS else builder.add
            value = add(self._loaded(place, dtype), value)
        return rounded(builder, value) if dtype == BFLOAT16 else value

    def _loaded(self, place: Any, dtype: str) -> Any:
        """Load a vector; bfloat16 is widened to float32."""
        vector = self.builder.load(place, align=SIZES[dtype])
        return widened(self.builder, vector) if dtype == BFLOAT16 else vector

    def _announce(self, place: Any, dtype: str) -> None:
        """Prefetch for writing the cache lines `AHEAD` bytes further on."""
        builder, byte = self.builder, ir.IntType(8).as_pointer()
        start = builder.bitcast(place, byte)
        for line in range(0, LANES * SIZES[dtype], _LINE):
            ahead = builder.gep(start, [ir.Constant(WORD, AHEAD + line)])
            # Write access, high locality, data cache.
            actual = [ahead, *(ir.Constant(INDEX, number) for number in (1, 3, 1))]
            call_function(builder, "llvm.prefetch.p0", ir.VoidType(), actual)

    def _new_block(self, name: str) -> Any:
        return self.function.append_basic_block(name)

    def _slot(self, index: int) -> Any:
        return slot(self.builder, WORD(index))

    def _copy(self, pairs: Sequence[tuple[Any, Any]], count: Any) -> None:
        """Copy `count` > 0 elements of each pair, one after the other."""
        if not pairs:
            return
        builder, before = self.builder, self.builder.block
        loop, after = (self._new_block(name) for name in ("copy", "copied"))
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

    def _fixed_nodes(self, operands: Sequence[Any]) -> None:
        """Compute loop invariants: constants, parameters, one-element operands, and what follows
        from these alone.
        """
        for index, node in enumerate(self.graph.nodes):
            if node.operation == "constant":
                self.values[index] = self.operations.constant(node)
            elif node.operation == "parameter":
                assert isinstance(node.detail, int)
                word = self._slot(1 + len(self.form.memory) + node.detail)
                self.values[index] = self._splat(self._from_word(word, node.dtype))
            elif node.operation == "operand":
                assert isinstance(node.detail, int)
                if self.form.steps[node.detail] == 0:
                    value = self._splat(self.builder.load(operands[node.detail]))
                    narrow = self.form.memory[self.outputs + node.detail] == BFLOAT16
                    self.values[index] = widened(self.builder, value) if narrow else value
            elif (
                all(argument in self.values for argument in node.arguments)
                and self.contexts.get(index) == ()
                and node.operation != "rarely"
            ):
                self.values[index] = self._computed(node)

    def _from_word(self, word: Any, dtype: str) -> Any:
        """Convert a parameter's bits to a number."""
        bits = ir.IntType(8 * SIZES[dtype])
        value = word if bits.width == 64 else self.builder.trunc(word, bits)
        return self.builder.bitcast(value, TYPES[dtype]) if dtype in FLOATS else value

    def _splat(self, scalar: Any) -> Any:
        builder = self.builder
        single = vector_of(scalar.type)
        placed = builder.insert_element(
            ir.Constant(single, ir.Undefined), scalar, ir.Constant(INDEX, 0)
        )
        mask = ir.Constant(vector_of(INDEX), [0] * LANES)
        return builder.shuffle_vector(placed, ir.Constant(single, ir.Undefined), mask)

    def _moving_nodes(self, vectors: Sequence[Any]) -> None:
        """Compute the nodes that differ between elements."""
        moving = iter(vectors)
        loaded = {i: next(moving) for i, step in enumerate(self.form.steps) if step}
        for index, node in enumerate(self.graph.nodes):
            if node.operation == "operand" and index not in self.values:
                assert isinstance(node.detail, int)
                self.values[index] = loaded[node.detail]
        self._nodes_of(())

    def _nodes_of(self, choices: tuple[int, ...]) -> None:
        """Compute the nodes needed under these choices, see `contexts`."""
        for index, node in enumerate(self.graph.nodes):
            if index not in self.values and self.contexts.get(index) == choices:
                rare = node.operation == "rarely"
                self.values[index] = self._chosen(index, choices) if rare else self._computed(node)

    def _chosen(self, index: int, choices: tuple[int, ...]) -> Any:
        """Compute a `rarely` node: its rare value only if the condition holds for some element."""
        builder = self.builder
        condition, rare, usual = self.graph.nodes[index].arguments
        mask, ordinary = self.values[condition], self.values[usual]
        lanes = ir.IntType(LANES)
        some = builder.icmp_unsigned("!=", builder.bitcast(mask, lanes), ir.Constant(lanes, 0))
        before = builder.block
        with builder.if_then(some, likely=False):
            self._nodes_of((*choices, index))
            mixed = builder.select(mask, self.values[rare], ordinary)
            chosen = builder.block
        value = builder.phi(ordinary.type)
        value.add_incoming(ordinary, before)
        value.add_incoming(mixed, chosen)
        return value

    def _computed(self, node: ScalarNode) -> Any:
        sources = [self.graph.nodes[argument].dtype for argument in node.arguments]
        return self.operations.computed(
            node, sources, [self.values[argument] for argument in node.arguments]
        )
