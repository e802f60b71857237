"""Compilation of native functions: Python source to machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm

from mxrun.codegen.llvm_target import target_machine
from mxrun.codegen.map_loop import MapLoop
from mxrun.codegen.object_cache import CompiledObject
from mxrun.codegen.scalar_llvm import map_module
from mxrun.codegen.sequential.basic_intrinsics import BASIC, map_symbol
from mxrun.codegen.sequential.kinds import ARGUMENTS
from mxrun.codegen.sequential.lowering import Call, lowered
from mxrun.codegen.sequential.panel_intrinsics import PANELS
from mxrun.codegen.sequential.product_intrinsics import PRODUCTS
from mxrun.codegen.sequential.reduction_intrinsics import REDUCTIONS
from mxrun.codegen.sequential.scan_intrinsics import SCANS
from mxrun.codegen.sequential.single_lane_stores import with_scalar_stores
from mxrun.codegen.sequential.vector_intrinsics import VECTORS

INTRINSICS = {**BASIC, **PANELS, **PRODUCTS, **REDUCTIONS, **SCANS, **VECTORS}

_DECLARED = {each.__name__: each for each in INTRINSICS}
_OPTIMIZATION = 3


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
    # Inlined functions of other files use intrinsics that the body's file need not import.
    names = {**_DECLARED, **body.__globals__}
    kinds = {name: ARGUMENTS[kind] for name, kind in arguments.items()}
    call = Call(kinds, constants, len(maps))
    module = llvm.parse_assembly(str(lowered(symbol, body, names, INTRINSICS, call)))
    module.verify()
    # Maps compute with the widest registers, see `scalar_llvm`.
    machine = target_machine(_OPTIMIZATION, *(("-prefer-256-bit",) if maps else ()))
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(_OPTIMIZATION)
    options.loop_vectorization = True
    options.loop_unrolling = not is_compact
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    module = with_scalar_stores(module)
    for number, each in enumerate(maps):
        _add_map(module, map_symbol(number), each)
    # An option of the process.
    llvm.set_option("", f"-disable-lsr={str(is_compact).lower()}")
    code = machine.emit_object(module)
    llvm.set_option("", "-disable-lsr=false")
    return CompiledObject(symbol, code)


def _add_map(module: Any, symbol: str, loop: MapLoop) -> None:
    """Add the code of a map to an optimized module, with which it becomes one object.

    It is not optimized: its vectors would be divided differently, which takes up to a third longer.
    """
    own = map_module(symbol, loop.graph, loop.results, loop.form)
    own.triple, own.data_layout = module.triple, module.data_layout
    module.link_in(own)
    module.get_function(symbol).linkage = "internal"
