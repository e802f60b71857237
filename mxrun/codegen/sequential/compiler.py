"""Compilation of native functions: Python source to machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from mxrun.base.locks import FIRST_TIME
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


def compile_function(
    symbol: str,
    body: Callable[..., Any],
    arguments: Mapping[str, str],
    constants: Mapping[str, int],
    is_compact: bool,
    maps: Sequence[MapLoop] = (),
) -> CompiledObject:
    """Compile a body to the function `symbol`, of the form of `jit.NativeCode`.

    symbol: unique in a process. arguments: kinds of the arguments by name. constants: values of
    integers among them that are known. is_compact: see `jit.compact`. maps: those that `run_map`
    runs. The functions that the body inlines have its global names; names that are
    missing there have their values in these functions' own files. Raises Untyped for code outside
    of the language.
    """
    code = _lowered(symbol, body, arguments, constants, len(maps), INTRINSICS, Statements)
    # Maps compute with the widest registers, see `scalar_llvm`.
    machine = target_machine(OPTIMIZATION, *(("-prefer-256-bit",) if maps else ()))
    module = optimized(code, machine, is_compact)
    module = with_scalar_stores(module)
    for number, each in enumerate(maps):
        _add_map(module, map_symbol(number), each)
    # An option of the process: all code is emitted under one lock.
    with FIRST_TIME:
        llvm.set_option("", f"-disable-lsr={str(is_compact).lower()}")
        try:
            return CompiledObject(symbol, machine.emit_object(module))
        finally:
            llvm.set_option("", "-disable-lsr=false")


def compile_kernel(
    symbol: str,
    body: Callable[..., Any],
    arguments: Mapping[str, str],
    constants: Mapping[str, int],
    is_compact: bool,
    maps: Sequence[MapLoop] = (),
) -> GpuKernel:
    """Compile a body to the kernel `symbol` of graphics cards, see `compile_function`."""
    known = constants, len(maps), _CARD_INTRINSICS, HalfWarpStatements
    module = _lowered(CODE, body, arguments, *known)
    for number, each in enumerate(maps):
        add_thread_map(module, map_symbol(number), each.graph, each.results, each.form)
    return kernel_of(symbol, module, tuple(arguments.values()), 1, is_compact)


def compile_block_kernel(
    symbol: str,
    body: Callable[..., Any],
    arguments: Mapping[str, str],
    constants: Mapping[str, int],
    threads: int,
) -> GpuKernel:
    """Compile a body to a kernel of which a block of so many threads is a task, see `blocks`."""
    module = _lowered(CODE, body, arguments, constants, 0, BLOCKS, statements_of(threads))
    return kernel_of(symbol, module, tuple(arguments.values()), 1, False, threads)


def _lowered(
    symbol: str,
    body: Callable[..., Any],
    arguments: Mapping[str, str],
    constants: Mapping[str, int],
    maps: int,
    intrinsics: Mapping[Any, Intrinsic],
    statements: type[Statements],
) -> Any:
    """Return llvmlite's module of a body, see `compile_function` and `lowering.lowered`."""
    # Inlined functions of other files use intrinsics that the body's file need not import.
    names = {**_DECLARED, **body.__globals__}
    kinds = {name: ARGUMENTS[kind] for name, kind in arguments.items()}
    return lowered(symbol, body, names, intrinsics, Call(kinds, constants, maps), statements)


def _add_map(module: Any, symbol: str, loop: MapLoop) -> None:
    """Add the code of a map to an optimized module, with which it becomes one object.

    It is not optimized: its vectors would be divided differently, which takes up to a third longer.
    """
    own = map_module(symbol, loop.graph, loop.results, loop.form)
    own.triple, own.data_layout = module.triple, module.data_layout
    module.link_in(own)
    module.get_function(symbol).linkage = "internal"
