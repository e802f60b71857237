"""LLVM code of a map's elements: its graph of machine operations, for one vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from mxrun.base.dtype import BFLOAT16
from mxrun.codegen.llvm_bfloat16 import rounded, widened
from mxrun.codegen.llvm_block import address, function_of, slot
from mxrun.codegen.scalar_operations import (
    INDEX,
    SIZES,
    TYPES,
    WORD,
    OperationGenerator,
    vector_of,
)
from mxrun.codegen.scalar_value import (
    FLOATS,
    LoopForm,
    ScalarGraph,
    ScalarNode,
    rare_contexts,
)


class MapGenerator:
    """Generator of a map's function `symbol`, of the form of `jit.NativeCode`.

    The block has the number of elements, the outputs' addresses, the operands' addresses, the
    parameters' bits. lanes: elements of a vector. aligned: number of elements of which every
    address of a vector is a multiple.
    """

    def __init__(
        self, module: Any, symbol: str, graph: ScalarGraph, results: Sequence[int], form: LoopForm
    ) -> None:
        self.graph, self.results, self.form = graph, results, form
        self.function = function_of(module, symbol)
        self.builder = ir.IRBuilder(self.function.append_basic_block())
        self.outputs = len(results)
        self.contexts = rare_contexts(graph, results)
        # Step of every tensor: the outputs come first.
        self.steps = (*(1,) * self.outputs, *form.steps)

    def begin(self, lanes: int, aligned: int = 1) -> None:
        """Start the code of vectors of so many lanes."""
        self.lanes, self.aligned = lanes, aligned
        self.operations = OperationGenerator(self.builder, lanes)
        self.values: dict[int, Any] = {}

    def tensors(self) -> list[Any]:
        """Load the addresses of all tensors."""
        kinds = [TYPES[dtype] for dtype in self.form.memory]
        return [
            address(self.builder, self.slot(1 + i), kind.as_pointer())
            for i, kind in enumerate(kinds)
        ]

    def moving(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the tensors with one element for each of the map's."""
        return [tensor for tensor, step in zip(tensors, self.steps, strict=True) if step]

    def new_block(self, name: str) -> Any:
        """Append a block to the function."""
        return self.function.append_basic_block(name)

    def slot(self, index: int) -> Any:
        """Load an entry of the block."""
        return slot(self.builder, WORD(index))

    def compute(self, places: Sequence[Any]) -> list[Any]:
        """Return the outputs' vectors, computed from those at the places of moving tensors."""
        count = self.outputs
        read = zip(self.form.memory[count:], self.form.steps, strict=True)
        moving = [dtype for dtype, step in read if step]
        self._moving_nodes([*map(self._loaded, places[count:], moving)])
        return [self._stored(output, place) for output, place in enumerate(places[:count])]

    def store(self, values: Sequence[Any], places: Sequence[Any]) -> None:
        """Store the outputs' vectors."""
        for value, place, dtype in zip(values, places, self.form.memory, strict=False):
            self.builder.store(value, place, align=SIZES[dtype] * self.aligned)

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
        vector = self.builder.load(place, align=SIZES[dtype] * self.aligned)
        return widened(self.builder, vector) if dtype == BFLOAT16 else vector

    def fixed_nodes(self, operands: Sequence[Any]) -> None:
        """Compute loop invariants: constants, parameters, one-element operands, and what follows
        from these alone.
        """
        for index, node in enumerate(self.graph.nodes):
            if node.operation == "constant":
                self.values[index] = self.operations.constant(node)
            elif node.operation == "parameter":
                assert isinstance(node.detail, int)
                word = self.slot(1 + len(self.form.memory) + node.detail)
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
        single = vector_of(scalar.type, self.lanes)
        placed = builder.insert_element(
            ir.Constant(single, ir.Undefined), scalar, ir.Constant(INDEX, 0)
        )
        mask = ir.Constant(vector_of(INDEX, self.lanes), [0] * self.lanes)
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
        lanes = ir.IntType(self.lanes)
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
