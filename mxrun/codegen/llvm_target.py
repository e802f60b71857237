"""The processor as a target of LLVM, and calls of functions by their names."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from mxrun.codegen.processor import processor


def has_half_width_registers() -> bool:
    """Return whether 512-bit instructions take two cycles, and stores of 512 bits longer still.

    Loops that are bound by memory are then faster with 256-bit instructions.
    """
    return processor().name == "znver4"


def adds_and_multiplies_apart() -> bool:
    """Return whether additions and conversions do not share execution units with multiplications.

    These processors, AMD's, also prefetch for writes by themselves.
    """
    return processor().name.startswith("znver")


def target_machine(optimization: int, *features: str) -> Any:
    """Return a generator of machine code for the processor.

    optimization: level of code generation, 0 to 3. features: changes of the processor's features.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    chosen = processor()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=chosen.name,
        features=",".join([chosen.features, *features]),
        opt=optimization,
        reloc="default",
        codemodel="jitdefault",
    )


def multiply_add(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """Generate x * y + z, of float32 or float64, rounded once if the processor can do that.

    Elsewhere a function of the C library would be called for each element.
    """
    if not processor().has("fma"):
        return builder.fadd(builder.fmul(x, y), z)
    element = getattr(x.type, "element", x.type)
    count = f"v{x.type.count}" if isinstance(x.type, ir.VectorType) else ""
    bits = 32 if element == ir.FloatType() else 64
    return call_function(builder, f"llvm.fma.{count}f{bits}", x.type, [x, y, z])


def call_function(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """Call a function by name, such as one of LLVM's intrinsics; it is declared if necessary."""
    known = builder.module.globals.get(name)
    if known is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        known = ir.Function(builder.module, kind, name)
    return builder.call(known, arguments)
