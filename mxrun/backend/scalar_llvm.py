"""LLVM code generation for maps: a graph of machine operations as a loop over vectors.

The loop's body uses explicit vectors, so that nothing depends on an optimiser's vectorisation, and
code generation takes only a few milliseconds. The elements after the last full vector are copied to
a small buffer and processed by the same body.

A map's function takes an argument block like every native function (see `jit`): number of elements,
the output's address, the operands' addresses, the parameters' bits. Each thread of the team
processes its own part of the elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from mxrun.backend.llvm_bfloat16 import rounded, widened
from mxrun.backend.llvm_block import share, slot
from mxrun.backend.object_cache import CompiledObject
from mxrun.backend.scalar_instructions import OPTIONAL
from mxrun.backend.scalar_value import (
    BOOL,
    FLOATS,
    LoopForm,
    ScalarGraph,
    ScalarNode,
    rare_contexts,
)
from mxrun.base.dtype import BFLOAT16

# Elements of a vector. Two registers of 512 bits side by side hide the latency of long dependency
# chains (tanh over 3 million floats: 1.05 ms, with one 1.32); float64 takes four.
LANES = 32

# Distance, in bytes, of prefetching for writes: processors prefetch reads themselves, but not
# writes. With it exp over 3 million floats takes 0.413 ms instead of 0.447.
AHEAD = 2048
_LINE = 64

# Float32 elements of an AVX-512 instruction.
_REGISTER = 16

_WORD = ir.IntType(64)
_INDEX = ir.IntType(32)
_TYPES: dict[str, Any] = {
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    "int32": ir.IntType(32),
    "int64": _WORD,
    "uint8": ir.IntType(8),
    BOOL: ir.IntType(1),
    # Only in memory.
    BFLOAT16: ir.IntType(16),
}
_NAMES = {"float32": "f32", "float64": "f64"}
_SIZES = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1, BFLOAT16: 2}
_SIGNED = ("int32", "int64")


def compile_map(symbol: str, graph: ScalarGraph, result: int, form: LoopForm) -> CompiledObject:
    """Compile the loop over a lowered graph that stores node `result` to the output.

    symbol: name of the function, which must be unique in a process.
    """
    module = _parsed(symbol, graph, result, form)
    return CompiledObject(symbol, _target_machine().emit_object(module))


def assembly(graph: ScalarGraph, result: int, form: LoopForm) -> str:
    """Return the loop as assembly text, for inspection."""
    return str(_target_machine().emit_assembly(_parsed("map_loop", graph, result, form)))


def module_text(graph: ScalarGraph, result: int, form: LoopForm) -> str:
    """Return the loop as LLVM IR."""
    return str(_parsed("map_loop", graph, result, form))


def _parsed(symbol: str, graph: ScalarGraph, result: int, form: LoopForm) -> Any:
    module = ir.Module(symbol)
    _LoopGenerator(module, symbol, graph, result, form).build()
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    return parsed


def instructions() -> frozenset[str]:
    """Return the optional operations of this processor: AVX-512 has all of them."""
    return OPTIONAL if llvm.get_host_cpu_features().get("avx512f") else frozenset()


@cache
def _target_machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    # Some processors' descriptions make LLVM avoid the widest registers because of their lower
    # clock.
    features = llvm.get_host_cpu_features().flatten() + ",-prefer-256-bit"
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=features.strip(","),
        opt=2,
        reloc="default",
        codemodel="jitdefault",
    )


class _LoopGenerator:
    """Builder of one loop's function."""

    def __init__(
        self, module: Any, symbol: str, graph: ScalarGraph, result: int, form: LoopForm
    ) -> None:
        self.module, self.graph, self.result, self.form = module, graph, result, form
        block_type = ir.FunctionType(ir.VoidType(), [_WORD.as_pointer()])
        self.function = ir.Function(module, block_type, symbol)
        self.builder = ir.IRBuilder(self.function.append_basic_block())
        self.values: dict[int, Any] = {}
        self.contexts = rare_contexts(graph, result)

    def build(self) -> None:
        """Build the complete function."""
        builder, form = self.builder, self.form
        kinds = [_TYPES[dtype] for dtype in form.memory]
        # The output comes first, because the add request reads it.
        cells = [self._cell(kinds[0])]
        cells += [
            self._cell(kind) for kind, step in zip(kinds[1:], form.steps, strict=True) if step
        ]
        begin, end = share(builder, self.function.args[0], self._slot(0))
        output, *operands = (
            builder.inttoptr(self._slot(1 + i), kind.as_pointer()) for i, kind in enumerate(kinds)
        )
        self._fixed_nodes(operands)
        moving = [o for o, step in zip(operands, form.steps, strict=True) if step]
        entry = builder.block
        head, next_vector, done = (
            self._new_block(name) for name in ("head", "next_vector", "done")
        )
        builder.branch(head)

        builder.position_at_end(head)
        at = builder.phi(_WORD)
        at.add_incoming(begin, entry)
        places = [builder.gep(place, [at]) for place in (output, *moving)]
        rest = builder.sub(end, at)
        builder.cbranch(builder.icmp_signed(">", rest, ir.Constant(_WORD, 0)), next_vector, done)

        builder.position_at_end(next_vector)
        last = self._vector(places, cells, rest)
        at.add_incoming(builder.add(at, ir.Constant(_WORD, LANES)), last)
        builder.branch(head)
        builder.position_at_end(done)
        builder.ret_void()

    def _cell(self, kind: Any) -> Any:
        """Allocate a buffer for one vector, initialised with 0.

        Previous content, such as denormal numbers, could slow the arithmetic down.
        """
        room = self.builder.alloca(self._vector_of(kind))
        self.builder.store(ir.Constant(self._vector_of(kind), None), room)
        return self.builder.bitcast(room, kind.as_pointer())

    def _vector(self, places: Sequence[Any], cells: Sequence[Any], rest: Any) -> Any:
        """Generate the code of one vector, with `rest` > 0 elements left; return the last block.

        An incomplete vector is computed in the buffers `cells`.
        """
        builder, begin = self.builder, self.builder.block
        fill, body, drain, after = (
            self._new_block(name) for name in ("fill", "body", "drain", "after")
        )
        is_full = builder.icmp_signed(">=", rest, ir.Constant(_WORD, LANES))
        builder.cbranch(is_full, body, fill)

        builder.position_at_end(fill)
        read = list(zip(places, cells, strict=True))
        self._copy(read if self.form.adds else read[1:], rest)
        filled = builder.block
        builder.branch(body)

        builder.position_at_end(body)
        meeting = [builder.phi(place.type) for place in places]
        for phi, place, cell in zip(meeting, places, cells, strict=True):
            phi.add_incoming(place, begin)
            phi.add_incoming(cell, filled)
        self._body(
            [builder.bitcast(p, self._vector_of(p.type.pointee).as_pointer()) for p in meeting]
        )
        builder.cbranch(is_full, after, drain)

        builder.position_at_end(drain)
        self._copy([(cells[0], places[0])], rest)
        builder.branch(after)
        builder.position_at_end(after)
        return after

    def _body(self, places: Sequence[Any]) -> None:
        """Compute the vector at the first place from those at the others."""
        builder, (output_dtype, *read) = self.builder, self.form.memory
        moving = [dtype for dtype, step in zip(read, self.form.steps, strict=True) if step]
        self._announce(places[0])
        self._moving_nodes([*map(self._loaded, places[1:], moving)])
        value = self.values[self.result]
        if self.form.adds:
            if output_dtype == BFLOAT16:
                # The added value is rounded exactly as a written one would be.
                value = widened(builder, rounded(builder, value))
            add = builder.fadd if self.form.output_dtype in FLOATS else builder.add
            value = add(self._loaded(places[0], output_dtype), value)
        if output_dtype == BFLOAT16:
            value = rounded(builder, value)
        builder.store(value, places[0], align=_SIZES[output_dtype])

    def _loaded(self, place: Any, dtype: str) -> Any:
        """Load a vector; bfloat16 is widened to float32."""
        vector = self.builder.load(place, align=_SIZES[dtype])
        return widened(self.builder, vector) if dtype == BFLOAT16 else vector

    def _announce(self, place: Any) -> None:
        """Prefetch for writing the cache lines `AHEAD` bytes further on."""
        builder, byte = self.builder, ir.IntType(8).as_pointer()
        start = builder.bitcast(place, byte)
        for line in range(0, LANES * _SIZES[self.form.memory[0]], _LINE):
            ahead = builder.gep(start, [ir.Constant(_WORD, AHEAD + line)])
            # Write access, high locality, data cache.
            actual = [ahead, *(ir.Constant(_INDEX, number) for number in (1, 3, 1))]
            builder.call(self._declared("llvm.prefetch.p0", ir.VoidType(), actual), actual)

    def _vector_of(self, element: Any) -> Any:
        return ir.VectorType(element, LANES)

    def _new_block(self, name: str) -> Any:
        return self.function.append_basic_block(name)

    def _slot(self, index: int) -> Any:
        return slot(self.builder, self.function.args[0], _WORD(index))

    def _copy(self, pairs: Sequence[tuple[Any, Any]], count: Any) -> None:
        """Copy `count` > 0 elements of each pair, one after the other."""
        if not pairs:
            return
        builder, before = self.builder, self.builder.block
        loop, after = (self._new_block(name) for name in ("copy", "copied"))
        builder.branch(loop)
        builder.position_at_end(loop)
        i = builder.phi(_WORD)
        i.add_incoming(ir.Constant(_WORD, 0), before)
        for origin, goal in pairs:
            builder.store(builder.load(builder.gep(origin, [i])), builder.gep(goal, [i]))
        following = builder.add(i, ir.Constant(_WORD, 1))
        i.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
        builder.position_at_end(after)

    def _fixed_nodes(self, operands: Sequence[Any]) -> None:
        """Compute loop invariants: constants, parameters and one-element operands."""
        for index, node in enumerate(self.graph.nodes):
            if node.operation == "constant":
                self.values[index] = ir.Constant(
                    self._vector_of(_TYPES[node.dtype]), [node.detail] * LANES
                )
            elif node.operation == "parameter":
                assert isinstance(node.detail, int)
                word = self._slot(2 + len(self.form.steps) + node.detail)
                self.values[index] = self._splat(self._from_word(word, node.dtype))
            elif node.operation == "operand":
                assert isinstance(node.detail, int)
                if self.form.steps[node.detail] == 0:
                    value = self._splat(self.builder.load(operands[node.detail]))
                    narrow = self.form.memory[1 + node.detail] == BFLOAT16
                    self.values[index] = widened(self.builder, value) if narrow else value

    def _from_word(self, word: Any, dtype: str) -> Any:
        """Convert a parameter's bits to a number."""
        bits = ir.IntType(8 * _SIZES[dtype])
        value = word if bits.width == 64 else self.builder.trunc(word, bits)
        return self.builder.bitcast(value, _TYPES[dtype]) if dtype in FLOATS else value

    def _splat(self, scalar: Any) -> Any:
        builder = self.builder
        single = self._vector_of(scalar.type)
        placed = builder.insert_element(
            ir.Constant(single, ir.Undefined), scalar, ir.Constant(_INDEX, 0)
        )
        mask = ir.Constant(self._vector_of(_INDEX), [0] * LANES)
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
        arguments = [self.values[argument] for argument in node.arguments]
        sources = [self.graph.nodes[argument].dtype for argument in node.arguments]
        result = self._vector_of(_TYPES[node.dtype])
        builder, operation = self.builder, node.operation
        if operation in _AVX512:
            return self._avx512(operation, arguments)
        if operation == "lookup":
            return self._looked_up(node, arguments[0])
        if operation in _INTRINSICS:
            return self._intrinsic(_INTRINSICS[operation], node.dtype, arguments)
        if operation in _COMPARISONS:
            return self._compared(_COMPARISONS[operation], sources[0], arguments)
        if operation == "select":
            return builder.select(*arguments)
        if operation == "bits":
            return builder.bitcast(arguments[0], result)
        if operation == "convert":
            return self._converted(arguments[0], sources[0], node.dtype, result)
        if operation == "negative":
            return (builder.fneg if node.dtype in FLOATS else builder.neg)(arguments[0])
        if operation == "call":
            return self._by_element(self._library(node), arguments, result)
        floating, integral = _ARITHMETIC[operation]
        return getattr(builder, floating if node.dtype in FLOATS else integral)(*arguments)

    def _intrinsic(self, name: str, dtype: str, arguments: Sequence[Any]) -> Any:
        full = f"llvm.{name}.v{LANES}{_NAMES[dtype]}"
        function = self._declared(full, arguments[0].type, arguments)
        return self.builder.call(function, arguments)

    def _avx512(self, operation: str, arguments: Sequence[Any]) -> Any:
        """Call a masked AVX-512 intrinsic.

        Its arguments are vectors, immediates, the pass-through value, the mask and the rounding
        mode.
        """
        name, numbers = _AVX512[operation]
        register = ir.VectorType(ir.FloatType(), _REGISTER)
        mask = ir.Constant(ir.IntType(_REGISTER), -1)
        constants = [ir.Constant(_INDEX, number) for number in numbers]
        parts = []
        for first in range(0, LANES, _REGISTER):
            own = [self._lanes_of(argument, first, _REGISTER) for argument in arguments]
            # The last argument selects the current rounding mode.
            actual = [*own, *constants, own[0], mask, ir.Constant(_INDEX, 4)]
            function = self._declared(f"llvm.x86.avx512.mask.{name}.ps.512", register, actual)
            parts.append(self.builder.call(function, actual))
        return self._joined(parts)

    def _looked_up(self, node: ScalarNode, index: Any) -> Any:
        """Look up entries of a table in two registers."""
        assert isinstance(node.detail, tuple)
        register = ir.VectorType(ir.FloatType(), _REGISTER)
        lower, upper = (
            ir.Constant(register, list(node.detail[first : first + _REGISTER]))
            for first in (0, _REGISTER)
        )
        parts = []
        for first in range(0, LANES, _REGISTER):
            actual = [lower, self._lanes_of(index, first, _REGISTER), upper]
            function = self._declared("llvm.x86.avx512.vpermi2var.ps.512", register, actual)
            parts.append(self.builder.call(function, actual))
        return self._joined(parts)

    def _lanes_of(self, value: Any, first: int, count: int) -> Any:
        mask = ir.Constant(ir.VectorType(_INDEX, count), list(range(first, first + count)))
        return self.builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), mask)

    def _joined(self, parts: Sequence[Any]) -> Any:
        """Concatenate two vectors."""
        first, second = parts
        mask = ir.Constant(ir.VectorType(_INDEX, LANES), list(range(LANES)))
        return self.builder.shuffle_vector(first, second, mask)

    def _declared(self, name: str, result: Any, arguments: Sequence[Any]) -> Any:
        """Return the function of a name, declaring it on first use."""
        function = self.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(result, [argument.type for argument in arguments])
            function = ir.Function(self.module, kind, name)
        return function

    def _compared(self, sign: str, dtype: str, arguments: Sequence[Any]) -> Any:
        builder = self.builder
        if dtype in FLOATS:
            compare = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
        else:
            compare = builder.icmp_signed if dtype in _SIGNED else builder.icmp_unsigned
        return compare(sign, *arguments)

    def _converted(self, value: Any, source: str, target: str, result: Any) -> Any:
        builder = self.builder
        if source in FLOATS and target in FLOATS:
            return (builder.fpext if target == "float64" else builder.fptrunc)(value, result)
        if target in FLOATS:
            signed = source in _SIGNED
            return (builder.sitofp if signed else builder.uitofp)(value, result)
        if source in FLOATS and target == "uint8":
            # Like C: by way of an int, of which the lowest bits remain.
            return builder.trunc(builder.fptosi(value, self._vector_of(_INDEX)), result)
        if source in FLOATS:
            return builder.fptosi(value, result)
        if _TYPES[target].width < _TYPES[source].width:
            return builder.trunc(value, result)
        return (builder.sext if source in _SIGNED else builder.zext)(value, result)

    def _by_element(self, make: Callable[..., Any], arguments: Sequence[Any], result: Any) -> Any:
        """Apply a scalar operation to each element, where no vector instruction exists."""
        builder = self.builder
        total = ir.Constant(result, ir.Undefined)
        for lane in range(LANES):
            place = ir.Constant(_INDEX, lane)
            scalars = [builder.extract_element(argument, place) for argument in arguments]
            total = builder.insert_element(total, make(*scalars), place)
        return total

    def _library(self, node: ScalarNode) -> Callable[..., Any]:
        """Return a call of a C function of numbers of the node's own type."""
        number = _TYPES[node.dtype]

        def call(*scalars: Any) -> Any:
            return self.builder.call(self._declared(str(node.detail), number, scalars), scalars)

        return call


_INTRINSICS = {
    "fma": "fma",
    "magnitude": "fabs",
    "copy_sign": "copysign",
    "square_root": "sqrt",
    "nearest_even": "rint",
    "round_down": "floor",
    "round_up": "ceil",
    "truncate": "trunc",
}
# Name and immediate operands. 11 of a mantissa: interval 3/4 to 3/2, NaN for negative numbers.
_AVX512: dict[str, tuple[str, tuple[int, ...]]] = {
    "scale": ("scalef", ()),
    "exponent": ("getexp", ()),
    "mantissa": ("getmant", (11,)),
}
_COMPARISONS = {"less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!="}
_ARITHMETIC = {
    "add": ("fadd", "add"),
    "subtract": ("fsub", "sub"),
    "multiply": ("fmul", "mul"),
    "divide": ("fdiv", ""),
    "and": ("", "and_"),
    "or": ("", "or_"),
    "xor": ("", "xor"),
    "shift_left": ("", "shl"),
    "shift_right": ("", "ashr"),
}
