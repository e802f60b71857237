"""The host's processor as a target of LLVM, and calls of functions by their names."""

from __future__ import annotations

from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir


@cache
def has_half_width_registers() -> bool:
    """Return whether 512-bit instructions take two cycles, and stores of 512 bits longer still.

    Loops that are bound by memory are then faster with 256-bit instructions.
    """
    return str(llvm.get_host_cpu_name()) == "znver4"


@cache
def adds_and_multiplies_apart() -> bool:
    """Return whether additions and conversions do not share execution units with multiplications.

    These processors, AMD's, also prefetch for writes by themselves.
    """
    return str(llvm.get_host_cpu_name()).startswith("znver")


def target_machine(optimization: int, *features: str) -> Any:
    """Return a generator of machine code for this processor.

    optimization: level of code generation, 0 to 3. features: changes of the processor's features.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=",".join([llvm.get_host_cpu_features().flatten(), *features]),
        opt=optimization,
        reloc="default",
        codemodel="jitdefault",
    )


def call_function(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """Call a function by name, such as one of LLVM's intrinsics; it is declared if necessary."""
    known = builder.module.globals.get(name)
    if known is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        known = ir.Function(builder.module, kind, name)
    return builder.call(known, arguments)
