"""Compilation of native functions: Python source to machine code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import llvmlite.binding as llvm

from mxrun.base.locks import FIRST_TIME
from mxrun.codegen.function_source import FunctionSource
from mxrun.codegen.gpu_kernel import GpuKernel
from mxrun.codegen.kernel_entry import CODE, kernel_of
from mxrun.codegen.llvm_target import OPTIMIZATION, optimized, target_machine
from mxrun.codegen.map_loop import MapLoop
from mxrun.codegen.map_ptx import add_thread_map
from mxrun.codegen.object_cache import CompiledObject
from mxrun.codegen.scalar_llvm import map_module
from mxrun.codegen.sequential.basic_intrinsics import BASIC, map_symbol
from mxrun.codegen.sequential.block import BLOCKS, statements_of
from mxrun.codegen.sequential.half_warp_statements import REFUSED, HalfWarpStatements
from mxrun.codegen.sequential.intrinsic import Intrinsic
from mxrun.codegen.sequential.kinds import ARGUMENTS
from mxrun.codegen.sequential.lowering import Call, Statements, lowered
from mxrun.codegen.sequential.panel_intrinsics import PANELS
from mxrun.codegen.sequential.product_intrinsics import PRODUCTS
from mxrun.codegen.sequential.reduction_intrinsics import REDUCTIONS
from mxrun.codegen.sequential.scan_intrinsics import SCANS
from mxrun.codegen.sequential.single_lane_stores import with_scalar_stores
from mxrun.codegen.sequential.vector_intrinsics import VECTORS

INTRINSICS = {**BASIC, **PANELS, **PRODUCTS, **REDUCTIONS, **SCANS, **VECTORS}

_CARD_INTRINSICS = {**INTRINSICS, **REFUSED}
_DECLARED = {each.__name__: each for each in INTRINSICS}


def compile_function(symbol: str, source: FunctionSource) -> CompiledObject:
    """Compile a function to the symbol, which is unique in a process and has the form of
    `jit.NativeCode`. Raises Untyped for code outside of the language.
    """
    code = _lowered(symbol, source, INTRINSICS, Statements)
    # Maps compute with the widest registers, see `scalar_llvm`.
    machine = target_machine(OPTIMIZATION, *(("-prefer-256-bit",) if source.maps else ()))
    module = optimized(code, machine, source.is_compact)
    module = with_scalar_stores(module)
    for number, each in enumerate(source.maps):
        _add_map(module, map_symbol(number), each)
    # An option of the process: all code is emitted under one lock.
    with FIRST_TIME:
        llvm.set_option("", f"-disable-lsr={str(source.is_compact).lower()}")
        try:
            return CompiledObject(symbol, machine.emit_object(module))
        finally:
            llvm.set_option("", "-disable-lsr=false")


def compile_kernel(symbol: str, source: FunctionSource) -> GpuKernel:
    """Compile a function to the kernel `symbol` of graphics cards, see `compile_function`."""
    module = _lowered(CODE, source, _CARD_INTRINSICS, HalfWarpStatements)
    for number, each in enumerate(source.maps):
        add_thread_map(module, map_symbol(number), each.graph, each.results, each.form)
    return kernel_of(symbol, module, tuple(source.arguments.values()), 1, source.is_compact)


def compile_block_kernel(symbol: str, source: FunctionSource, threads: int) -> GpuKernel:
    """Compile a function to a kernel of which a block of threads is a task, see `blocks`."""
    module = _lowered(CODE, source, BLOCKS, statements_of(threads))
    return kernel_of(symbol, module, tuple(source.arguments.values()), 1, False, threads)


def _lowered(
    symbol: str,
    source: FunctionSource,
    intrinsics: Mapping[Any, Intrinsic],
    statements: type[Statements],
) -> Any:
    """Return llvmlite's module of a function, see `lowering.lowered`."""
    # Inlined functions of other files use intrinsics that the body's file need not import.
    names = {**_DECLARED, **source.body.__globals__}
    kinds = {name: ARGUMENTS[kind] for name, kind in source.arguments.items()}
    call = Call(kinds, source.constants, len(source.maps))
    return lowered(symbol, source.body, names, intrinsics, call, statements)


def _add_map(module: Any, symbol: str, loop: MapLoop) -> None:
    """Add the code of a map to an optimized module, with which it becomes one object.

    It is not optimized: its vectors would be divided differently, which takes up to a third longer.
    """
    own = map_module(symbol, loop.graph, loop.results, loop.form)
    own.triple, own.data_layout = module.triple, module.data_layout
    module.link_in(own)
    module.get_function(symbol).linkage = "internal"
