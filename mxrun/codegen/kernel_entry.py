"""Entries of graphics cards' kernels: parameters, and the part of each thread."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mxrun.codegen.gpu_kernel import GpuKernel
from mxrun.codegen.llvm_block import function_of
from mxrun.codegen.llvm_target import OPTIMIZATION, optimized, special_register, target_machine
from mxrun.codegen.sequential.kinds import FLOAT32, INT32, INT64
from mxrun.codegen.vectors import LANES

# Threads of a block: eight half-warps, of which each runs a task.
THREADS = 128
# Name of the function that a kernel calls.
CODE = "code"


def kernel_of(
    symbol: str,
    module: Any,
    parameters: tuple[str, ...],
    parts: int,
    is_compact: bool,
    threads: int = LANES,
) -> GpuKernel:
    """Return the kernel `symbol` of the function `CODE`, of the form of `jit.NativeCode`.

    parameters: kinds of the slots of its block. threads: of a task: half a warp, or an entire
    block. parts: what the function counts as its tasks: one, or one for each of these threads.
    """
    _add_entry(symbol, module, parameters, threads // parts, parts)
    machine = target_machine(OPTIMIZATION)
    compiled = optimized(module, machine, is_compact)
    # Code generation changes the module.
    text = str(compiled)
    return GpuKernel(
        symbol=symbol,
        parameters=(*parameters, INT64.name),
        ptx=str(machine.emit_assembly(compiled)),
        module=text,
        threads=THREADS if threads == LANES else threads,
        tasks_per_block=THREADS // LANES if threads == LANES else 1,
    )


def _add_entry(
    symbol: str, module: Any, parameters: tuple[str, ...], threads: int, parts: int
) -> None:
    """Add the kernel, which makes the argument block of its parameters, in registers.

    threads: of one of the function's tasks. parts: the function's tasks for each of the launch's.
    """
    word, number = INT64.code, INT32.code
    kinds = [FLOAT32.code if kind == FLOAT32.name else word for kind in parameters]
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [*kinds, word]), symbol)
    entry.calling_convention = "ptx_kernel"
    function = function_of(module, CODE)
    function.linkage = "internal"
    function.attributes.add("alwaysinline")
    *given, tasks = entry.args
    builder = ir.IRBuilder(entry.append_basic_block())
    block = builder.alloca(word, len(given))
    for index, value in enumerate(given):
        bits = value
        if value.type == FLOAT32.code:
            bits = builder.zext(builder.bitcast(value, number), word)
        builder.store(bits, builder.gep(block, [word(index)]))
    names = "ctaid", "ntid", "tid"
    own, width, at = (builder.zext(special_register(builder, name), word) for name in names)
    thread = builder.add(builder.mul(own, width), at)
    task, count = builder.udiv(thread, word(threads)), builder.mul(tasks, word(parts))
    with builder.if_then(builder.icmp_signed("<", task, count)):
        builder.call(function, [block, task, count, task])
    builder.ret_void()
