"""Lowering of block kernels to LLVM code for GPUs, see `mxrun.codegen.blocks`.

All threads of a block run all code. A region is code of one thread, with a barrier behind it. A
value that is read from memory outside of regions has a barrier too: a fast thread must not
overwrite it before a slow one has read it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from llvmlite import ir

from mxrun.codegen import blocks, intrinsics
from mxrun.codegen.llvm_bfloat16 import rounded, widened
from mxrun.codegen.llvm_target import call_function, multiply_add, special_register
from mxrun.codegen.sequential.arithmetic import Untyped, converted
from mxrun.codegen.sequential.basic_intrinsics import BASIC
from mxrun.codegen.sequential.expressions import JumpTargets, Scope
from mxrun.codegen.sequential.intrinsic import Intrinsic, number, operand_of, typed
from mxrun.codegen.sequential.kinds import (
    BFLOAT16,
    FLOAT32,
    FLOAT64,
    FLOATS,
    INT64,
    Operand,
    Pointer,
    Static,
    TypedValue,
)
from mxrun.codegen.sequential.lowering import Statements
from mxrun.codegen.sequential.vector_intrinsics import exp2_lanes

_INT32 = ir.IntType(32)
_SHARED = 3
# Bytes of shared memory that every card has for a block.
_MAX_SHARED_BYTES = 48 * 1024
_BYTES = {FLOAT32: 4, FLOAT64: 8}


class PrivatePointer(Pointer):
    """Address of elements of which every thread has its own."""


_PRIVATE = PrivatePointer(FLOAT32)


class BlockStatements(Statements):
    """Generator of the code that every thread of a block runs.

    threads: number of them, see `statements_of`. region: scope of the region whose code is
    generated, None outside.
    """

    threads: int
    region: Scope | None = None
    _fixed: frozenset[str] = frozenset()
    _shared_bytes = 0

    # Regions

    def do_for(self, node: ast.For) -> None:
        call = node.iter
        if not isinstance(call, ast.Call) or self.expression(call.func) != Static(blocks.threads):
            super().do_for(node)
            return
        self._without_else(node)
        if self.region is not None:
            raise Untyped("a region is inside of another one: their threads would not all meet")
        _, arguments, _ = self.called(call)
        if [_constant(self.builder, each) for each in arguments] != [self.threads]:
            raise Untyped(f"the regions of this kernel are of threads({self.threads})")
        outer, end = self.scope, self.builder.append_basic_block("region_end")
        self._scopes += 1
        # A copy, so that what the region assigns ends with it; its number gives it other types.
        own, loops = dict(outer.variables), [JumpTargets(end, None)]
        self.region = replace(outer, number=self._scopes, variables=own, loops=loops)
        self.scope, self._fixed = self.region, frozenset(own)
        self.assign(node.target, TypedValue(INT64, thread(self.builder)))
        self._statements(node.body)
        self._jump(end)
        self.builder.position_at_end(end)
        self.scope, self.region = outer, None
        barrier(self.builder)

    def assign_name(self, name: str, value: Operand) -> None:
        if self.scope is self.region and name in self._fixed:
            raise Untyped(f"{name} is of the entire block: a region can only read it")
        super().assign_name(name, value)

    def do_break(self, node: ast.Break) -> None:
        if self.scope.loops[-1].after is None:
            raise Untyped("break inside of a region leaves its loops only")
        super().do_break(node)

    def do_return(self, node: ast.Return) -> None:
        if self.scope is self.region:
            raise Untyped("return inside of a region: its threads would not all meet")
        super().do_return(node)

    def do_expr(self, node: ast.Expr) -> None:
        if self.scope is self.region and isinstance(node.value, (ast.Yield, ast.YieldFrom)):
            raise Untyped("yield inside of a region")
        super().do_expr(node)

    # Memory

    def element(self, node: ast.Subscript, owner: Operand | None = None) -> TypedValue:
        owner = self.expression(node.value) if owner is None else owner
        if self.region is None and isinstance(owner, TypedValue) and owner.kind == _PRIVATE:
            raise Untyped("elements of the threads are read and written in regions")
        return super().element(node, owner)

    def load_element(self, place: TypedValue) -> TypedValue:
        value = TypedValue(place.kind, self.builder.load(place.code))
        if self.region is None:
            barrier(self.builder)
        if place.kind == BFLOAT16:
            return TypedValue(FLOAT32, widened(self.builder, value.code))
        return value

    def store_element(self, place: TypedValue, value: TypedValue) -> None:
        if self.region is None:
            raise Untyped("memory is written in regions: outside of them every thread would")
        if place.kind == BFLOAT16:
            number_code = converted(self.builder, value, FLOAT32).code
            self.builder.store(rounded(self.builder, number_code), place.code)
        else:
            super().store_element(place, value)

    def of_call(self, node: ast.Call) -> Operand:
        function = self.expression(node.func)
        if function not in (Static(blocks.shared), Static(blocks.private)):
            return super().of_call(node)
        if self.region is not None:
            raise Untyped("memory of the block and of its threads is declared outside of regions")
        _, (given, *rest), _ = self.called(node)
        count, first = _constant(self.builder, given), [_INT32(0), _INT32(0)]
        if function == Static(blocks.private):
            with self.builder.goto_entry_block():
                own = self.builder.alloca(ir.ArrayType(FLOAT32.code, count))
            return TypedValue(_PRIVATE, self.builder.gep(own, first))
        element = FLOAT64 if rest == [Static(np.float64)] else FLOAT32
        kind = ir.ArrayType(element.code, count)
        self._shared_bytes += count * _BYTES[element]
        if self._shared_bytes > _MAX_SHARED_BYTES:
            raise Untyped(f"a block shares {self._shared_bytes} bytes; {_MAX_SHARED_BYTES} exist")
        module = self.builder.module
        place = ir.GlobalVariable(module, kind, module.get_unique_name("shared"), _SHARED)
        place.linkage, place.align = "internal", 16
        place.initializer = ir.Constant(kind, ir.Undefined)
        generic = self.builder.addrspacecast(place, kind.as_pointer())
        return TypedValue(Pointer(element), self.builder.gep(generic, first))


def statements_of(threads: int) -> type[BlockStatements]:
    """Return the generator of the code of blocks of so many threads."""
    return type("BlockStatements", (BlockStatements,), {"threads": threads})


def thread(builder: Any) -> Any:
    """Return the number of the thread in its block."""
    return builder.zext(special_register(builder, "tid"), INT64.code)


def barrier(builder: Any) -> None:
    """Wait for all threads of the block."""
    name = "llvm.nvvm.barrier.cta.sync.aligned.all"
    call_function(builder, name, ir.VoidType(), [_INT32(0)])


def _constant(builder: Any, operand: Operand) -> int:
    code = operand_of(builder, operand, INT64)
    if not isinstance(code, ir.Constant):
        raise Untyped("a constant is needed")
    return int(code.constant)


@typed(FLOAT32, FLOAT32)
def exp2(builder: Any, exponent: Any) -> Any:
    """Compute it as a vector's lane."""
    return number(exp2_lanes(builder, TypedValue(FLOATS, exponent))).code


def stored(builder: Any, pointer: Operand, value: Operand) -> Operand:
    """Round to bfloat16 where memory is."""
    memory, code = number(pointer), operand_of(builder, value, FLOAT32)
    if memory.kind == Pointer(BFLOAT16):
        code = widened(builder, rounded(builder, code))
    return TypedValue(FLOAT32, code)


# What blocks have no use for: tasks of a thread, and what only a CPU does.
_OF_TASKS = (
    *(intrinsics.call_address, intrinsics.each, intrinsics.exchange_word, intrinsics.fetch_add),
    *(intrinsics.load_word, intrinsics.run_map, intrinsics.share, intrinsics.spin),
    *(intrinsics.store_word, intrinsics.worker),
)
BLOCKS: Mapping[Any, Intrinsic] = {
    **{key: generate for key, generate in BASIC.items() if key not in _OF_TASKS},
    blocks.exp2: exp2,
    blocks.multiply_add: typed(FLOAT32, FLOAT32, FLOAT32, FLOAT32)(multiply_add),
    blocks.private: typed(None, INT64)(lambda *_: None),
    blocks.shared: typed(None, INT64)(lambda *_: None),
    blocks.stored: stored,
    blocks.threads: typed(None, INT64)(lambda *_: None),
}
