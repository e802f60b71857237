"""The target as LLVM's: its machine, types of vectors, and calls of functions by their names."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from mxrun.codegen.processor import processor
from mxrun.codegen.target import is_card

_TRIPLE_OF_CARDS = "nvptx64-nvidia-cuda"
# Level of the optimization of loops.
OPTIMIZATION = 3


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
    """Return a generator of machine code for the processor, or of PTX for a card.

    optimization: level of code generation, 0 to 3. features: changes of the processor's features.
    """
    if is_card():
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        triple = _TRIPLE_OF_CARDS
    else:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        triple = llvm.get_process_triple()
    chosen = processor()
    return llvm.Target.from_triple(triple).create_target_machine(
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
    if not (is_card() or processor().has("fma")):
        return builder.fadd(builder.fmul(x, y), z)
    return call_lanewise(builder, "fma", x, y, z)


def call_lanewise(builder: Any, name: str, *arguments: Any) -> Any:
    """Call one of LLVM's functions of numbers, or of vectors lane by lane, all of one type."""
    kind = arguments[0].type
    return call_function(builder, f"llvm.{name}.{type_name(kind)}", kind, list(arguments))


def lanes_of(element: Any, count: int) -> Any:
    """Return the type of a vector in registers: on a card that of the lane of a thread."""
    return element if is_card() else ir.VectorType(element, count)


def like(kind: Any, element: Any) -> Any:
    """Return `element`, or a vector of it with as many lanes as `kind`."""
    return ir.VectorType(element, kind.count) if isinstance(kind, ir.VectorType) else element


def constant(kind: Any, number: float) -> Any:
    """Return a constant of a type, broadcast if the type is a vector."""
    return ir.Constant(kind, [number] * kind.count if isinstance(kind, ir.VectorType) else number)


def type_name(kind: Any) -> str:
    """Return LLVM's name of a type in names of functions, such as v16f32."""
    count = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    element = getattr(kind, "element", kind)
    if isinstance(element, ir.IntType):
        return f"{count}i{element.width}"
    return f"{count}f{32 if element == ir.FloatType() else 64}"


def call_function(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """Call a function by name, such as one of LLVM's intrinsics; it is declared if necessary."""
    known = builder.module.globals.get(name)
    if known is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        known = ir.Function(builder.module, kind, name)
    return builder.call(known, arguments)


def special_register(builder: Any, name: str) -> Any:
    """Read a register of a card's thread, 32 bits: its number tid, its block's ctaid, ntid."""
    return call_function(builder, f"llvm.nvvm.read.ptx.sreg.{name}.x", ir.IntType(32), [])


def separate_function(module: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """Return a function of the module without code, to which its calls jump.

    On a card its barriers bind the code around each call: a branch by which threads differ must not
    be moved across it.
    """
    function = ir.Function(module, ir.FunctionType(result, arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    if is_card():
        function.attributes.add("convergent")
    return function


def optimized(code: Any, machine: Any, is_compact: bool) -> Any:
    """Return LLVM's module, optimized for a machine, of llvmlite's."""
    # Set in the text: where it names no alignment, it is that of the data layout.
    code.triple, code.data_layout = machine.triple, str(machine.target_data)
    module = llvm.parse_assembly(str(code))
    module.verify()
    options = llvm.create_pipeline_tuning_options(OPTIMIZATION)
    options.loop_vectorization = not is_card()
    options.loop_unrolling = not is_compact
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return module
