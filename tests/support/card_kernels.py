"""Everything that graphics cards run: native functions, and maps of operators and updates."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import mxrun.ops
from mxrun import library
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.codegen.jit import NativeFunction
from mxrun.codegen.map_loop import MapLoop
from mxrun.codegen.scalar_functions import VOCABULARY, Function
from mxrun.codegen.scalar_value import LoopForm
from mxrun.operator import native_kernel, scalar
from mxrun.operator.optimizer_property import OptimizerProperty
from mxrun.operator.register import OPERATORS, create
from mxrun.operator.simple_entry import Formula, SimpleEntry

# Functions that no card can run, with the reason.
_PAIRS = "is for processors that multiply pairs of bfloat16"
REFUSED = {
    "rnn.loops.forward_pairs_loop": _PAIRS,
    "rnn.loops.backward_pairs_loop": _PAIRS,
}
# Functions whose registers do not suffice, with the reason why that does not matter.
SPILLING = {
    "attention.backward.attention_gradient_loop": "cards have products of cuDNN for attention",
    "attention.forward.attention_loop": "cards have products of cuDNN for attention",
    "dense_product.dense_product_loop": "cards have products of cuDNN, unless it is missing",
}
# Arguments with which functions are compiled for cards.
_KNOWN = {"is_paired": 0}
# Operands of functions of several numbers.
_OPERANDS = {"pow": 2, "mod": 2, "maximum": 2, "minimum": 2, "fma": 3}


def native_functions() -> dict[str, NativeFunction]:
    """Return the native functions of all operators by name, of float32 and of bfloat16."""
    library.load()
    found = {}
    for module in [*_modules(), native_kernel]:
        for value in vars(module).values():
            if isinstance(value, NativeFunction) and value.body.__module__ == module.__name__:
                short = module.__name__.removeprefix("mxrun.").removeprefix("ops.")
                name = f"{short}.{value.body.__name__}"
                known = {key: _KNOWN[key] for key in value.arguments.keys() & _KNOWN}
                found[name] = function = value.with_constants(**known)
                if function.bfloat16.arguments != function.arguments:
                    found[f"{name} {BFLOAT16}"] = function.bfloat16
    return found


def maps(stored: str = "") -> dict[str, MapLoop]:
    """Return all maps by name: scalar functions, simple operators with their gradients, updates.

    Equal ones have one name. stored: type in memory of the float32 maps, if that is bfloat16.
    """
    library.load()
    found = {}
    for name in OPERATORS:
        entry = vars(OPERATORS.get(name)).get("entry")
        if isinstance(entry, SimpleEntry):
            for which, formula in _formulas(entry):
                found[_loop(formula.kernel(FLOAT32), stored)] = f"{name}{which}"
        if issubclass(OPERATORS.get(name), OptimizerProperty):
            fields = OPERATORS.get(name).parameter_type.model_fields
            missing = {key: 0.5 for key, each in fields.items() if each.is_required()}
            update: Any = create(name, missing)
            found[_loop(update.update_map.kernel, stored)] = name
    for name, word in VOCABULARY.items():
        for dtype in (FLOAT32, *(() if stored else ("float64", *_integers(word)))):
            operands = "xyz"[: _OPERANDS.get(name, 1)]
            kernel = scalar.compile(_call_of(name), operands=operands, dtype=dtype)
            found[_loop(kernel, stored)] = f"{name} of {dtype}"
    return {name: loop for loop, name in found.items()}


def _modules() -> Iterator[Any]:
    for each in pkgutil.walk_packages(mxrun.ops.__path__, "mxrun.ops."):
        yield importlib.import_module(each.name)


def _integers(word: Function) -> tuple[str, ...]:
    return () if word.floating else ("int32", "int64", "uint8")


def _call_of(name: str) -> Any:
    def called(*operands: Any) -> Any:
        return VOCABULARY[name](*operands)

    return called


def _formulas(entry: SimpleEntry) -> Iterator[tuple[str, Formula]]:
    if entry.forward.is_map:
        yield "", entry.forward
    for argument, gradient in zip(entry.arguments, entry.gradients, strict=True):
        if isinstance(gradient, Formula) and gradient.is_map:
            yield f" gradient of {argument}", gradient


def _loop(kernel: scalar.MapKernel, stored: str = "") -> MapLoop:
    count = len(kernel.operands)
    memory = (stored,) * (len(kernel.results) + count) if stored else ()
    adds = (False,) * len(kernel.results)
    form = LoopForm(kernel.dtype, (1,) * count, adds, kernel.result_dtypes, memory)
    return MapLoop(kernel.graph, kernel.results, form)


@cache
def everything() -> Mapping[str, NativeFunction | MapLoop]:
    """Return all functions that cards run, and all maps, by name."""
    functions = native_functions().items()
    return {
        **{key: each for key, each in functions if key.partition(" ")[0] not in REFUSED},
        **maps(),
    }
