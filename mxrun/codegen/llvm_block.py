"""LLVM functions of the form of `jit.NativeCode`: slots of the block, and shares."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from mxrun.codegen.target import is_card

_WORD = ir.IntType(64)
# A task's share is a multiple of so many elements.
_GRAIN = 16
# Number of the address space of a card's memory, see LLVM's guide to NVPTX.
_GLOBAL = 1


def function_of(module: Any, symbol: str) -> Any:
    """Return a function without code, which is added unless it is declared already.

    Its arguments are the block, task, tasks and worker.
    """
    if symbol in module.globals:
        return module.globals[symbol]
    kind = ir.FunctionType(ir.VoidType(), [_WORD.as_pointer(), _WORD, _WORD, _WORD])
    function = ir.Function(module, kind, symbol)
    if is_card():
        function.attributes.add("convergent")
    return function


def slot(builder: Any, index: Any) -> Any:
    """Load argument `index`, an LLVM value, as 64 bits."""
    return builder.load(builder.gep(builder.function.args[0], [index]))


def address(builder: Any, word: Any, kind: Any) -> Any:
    """Convert 64 bits to an address; on a card all are in the memory that the tasks share."""
    if not is_card():
        return builder.inttoptr(word, kind)
    return builder.addrspacecast(builder.inttoptr(word, kind.pointee.as_pointer(_GLOBAL)), kind)


def share(builder: Any, count: Any) -> tuple[Any, Any]:
    """Compute the task's part [begin, end) of `count` elements, in multiples of 16."""
    _, task, tasks, _ = builder.function.args
    grain = _WORD(_GRAIN)
    rounded = builder.add(count, builder.sub(builder.mul(tasks, grain), _WORD(1)))
    chunk = builder.mul(builder.sdiv(rounded, builder.mul(tasks, grain)), grain)
    begin = smaller(builder, count, builder.mul(task, chunk))
    return begin, smaller(builder, count, builder.add(begin, chunk))


def smaller(builder: Any, left: Any, right: Any) -> Any:
    """Return the smaller of two integers."""
    return builder.select(builder.icmp_signed("<", left, right), left, right)
