"""Code of loads and stores of the lanes of a vector that are in a mask."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mxrun.codegen.llvm_target import call_function, separate_function
from mxrun.codegen.processor import processor

_NAMES = {ir.FloatType(): "f32", ir.DoubleType(): "f64"}


def load_lanes_of(builder: Any, place: Any, align: Any, mask: Any, rest: Any) -> Any:
    """Load the lanes in a mask; the others are those of `rest`."""
    return _call(builder, "load", rest.type, rest.type, [place, align, mask, rest])


def store_lanes_of(builder: Any, value: Any, place: Any, align: Any, mask: Any) -> None:
    """Store the lanes in a mask."""
    _call(builder, "store", value.type, ir.VoidType(), [value, place, align, mask])


def _call(builder: Any, name: str, kind: Any, result: Any, arguments: list[Any]) -> Any:
    """Call one of LLVM's intrinsics.

    The oldest processors of x86-64 have no such instructions. There LLVM generates a branch for
    each lane, and the code of all of them, of recurrent layers for example, takes half a minute to
    compile: these are a function of their own.
    """
    element = kind.element
    suffix = f"i{element.width}" if isinstance(element, ir.IntType) else _NAMES[element]
    full = f"llvm.masked.{name}.v{kind.count}{suffix}.p0"
    chosen = processor()
    if chosen.has("avx") or not chosen.has("sse2"):
        return call_function(builder, full, result, arguments)
    align = next(each for each in arguments if each.type == ir.IntType(32)).constant
    own = f"masked_{name}_v{kind.count}{suffix}_{align}"
    if own not in builder.module.globals:
        types = [each.type for each in arguments]
        function = separate_function(builder.module, own, result, types)
        _generate(function, name, full, kind, align)
    return builder.call(builder.module.globals[own], arguments)


def _generate(function: Any, name: str, full: str, kind: Any, align: int) -> None:
    """Generate the function of the intrinsic `full`: a mask of all lanes is an ordinary access."""
    builder = ir.IRBuilder(function.append_basic_block())
    values = list(function.args)
    position = next(i for i, each in enumerate(values) if each.type == ir.IntType(32))
    values[position] = ir.IntType(32)(align)
    bits = ir.IntType(kind.count)
    mask = next(each for each in values if each.type == ir.VectorType(ir.IntType(1), kind.count))
    is_full = builder.icmp_unsigned("==", builder.bitcast(mask, bits), bits(-1))
    place = values[0] if name == "load" else values[1]
    with builder.if_then(is_full):
        if name == "load":
            builder.ret(builder.load(place, align=align))
        else:
            builder.store(values[0], place, align=align)
            builder.ret_void()
    found = call_function(builder, full, function.ftype.return_type, values)
    if name == "load":
        builder.ret(found)
    else:
        builder.ret_void()
