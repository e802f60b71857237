"""Limits on the instruction sets that oneDNN may use on this machine."""

from __future__ import annotations

import ctypes
import os

from mxrun.base import flags
from mxrun.codegen.processor import host

# oneDNN's environment variable and its older name; all instruction sets except the matrix unit's.
_VARIABLES = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_WITHOUT_TILES = "AVX512_CORE_FP16"
# Its names of instructions, from the fewest on, up to those of the last kind that has a limit.
_ORDER = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE")
# Its name of the instructions of each kind of processor; it has no code without SSE 4.1.
_LIMITS = {"x86-64": "SSE41", "avx2": "AVX2", "avx512": "AVX512_CORE"}
# CPUID leaf of the matrix unit's tiles; it returns the number of palettes.
_TILES = 0x1D


def limit_instructions() -> None:
    """Limit oneDNN to the instructions of the kind of processor that MXRUN_PROCESSOR names.

    If it names none, or one with a matrix unit (AMX), that is disabled unless the processor
    describes its tiles. Some virtual machines announce the unit but leave its description empty.
    oneDNN then configures no tiles, and its matrix products end the process with an illegal
    instruction. Call it before oneDNN is loaded. The limit is inherited by child processes; a
    variable that the user has set takes precedence over that, and over a kind with more
    instructions.
    """
    limit = _LIMITS.get(flags.processor() or "")
    if limit is not None:
        given = next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), limit)
        if given.upper() not in _ORDER[: _ORDER.index(limit)]:
            os.environ[_VARIABLES[0]] = limit
    elif not os.environ.keys() & {*_VARIABLES} and announces_tiles() and not described_tiles():
        os.environ[_VARIABLES[0]] = _WITHOUT_TILES


def announces_tiles() -> bool:
    """Return whether the processor announces a matrix unit."""
    return host().has("amx-tile")


def described_tiles() -> int:
    """Return the number of the matrix unit's palettes; requires that the processor has the leaf."""
    import llvmlite.binding as llvm
    from llvmlite import ir

    word = ir.IntType(32)
    module = ir.Module("tiles")
    function = ir.Function(module, ir.FunctionType(word, []), "tiles")
    builder = ir.IRBuilder(function.append_basic_block())
    # CPUID takes a leaf and a subleaf, and overwrites four registers.
    registers = "={eax},{eax},{ecx},~{ebx},~{ecx},~{edx}"
    cpuid = ir.InlineAsm(ir.FunctionType(word, [word, word]), "cpuid", registers, side_effect=True)
    builder.ret(builder.call(cpuid, [word(_TILES), word(0)]))
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    return int(ctypes.CFUNCTYPE(ctypes.c_uint32)(engine.get_function_address("tiles"))())
