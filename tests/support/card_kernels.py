"""Everything that graphics cards run: native functions, and maps of operators and updates."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from gpu_emulator.operators import ON_CPU, runs
from operator_rows import ROWS

import mxrun.ops
from mxrun import library
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.codegen.jit import NativeFunction
from mxrun.codegen.map_loop import MapLoop
from mxrun.codegen.scalar_functions import VOCABULARY, Function
from mxrun.codegen.scalar_value import LoopForm
from mxrun.operator import native_kernel, scalar
from mxrun.operator.optimizer_property import OptimizerProperty
from mxrun.operator.register import OPERATORS, create, implementations
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
# Rows of operators, one for each function that runs maps, whose maps it has here.
_MAPPED = {
    "exp": "scaled_dot_product_attention-2x17x24-num_heads=2-causal=True-packed=True-max_length=33"
    "-use_position=True",
    "gelu": "_bias_activation-6x5",
    "gru": "RNN-3x2x4-state_size=3-mode=gru-num_layers=1",
    "lstm": "RNN-3x2x4-state_size=3-mode=lstm-num_layers=1",
    "power": "broadcast_power-2x3x4-1x3x1",
    "silu": "gated_activation-3x5x66-act_type=silu",
}
# Operands of functions of several numbers.
_OPERANDS = {"pow": 2, "mod": 2, "maximum": 2, "minimum": 2, "fma": 3}


def native_functions() -> dict[str, NativeFunction]:
    """Return the native functions of all operators by name, of float32 and of bfloat16."""
    library.load()
    found = {}
    for module in [*_modules(), native_kernel]:
        for value in vars(module).values():
            if isinstance(value, NativeFunction) and value.body.__module__ == module.__name__:
                name = f"{_short(module.__name__)}.{value.body.__name__}"
                known = {key: _KNOWN[key] for key in value.arguments.keys() & _KNOWN}
                found[name] = function = value.with_constants(**known)
                if function.bfloat16.arguments != function.arguments:
                    found[f"{name} {BFLOAT16}"] = function.bfloat16
    return found


@cache
def mapped_functions() -> Mapping[str, NativeFunction]:
    """Return the native functions that run maps by name, with those of some rows of operators."""
    library.load()
    rows, found = {str(row): row for row in ROWS}, {}
    for what, name in _MAPPED.items():
        known = implementations(rows[name].operator)
        # Which loop of a recurrent layer a CPU runs in bfloat16 depends on its instructions.
        for is_low in (False, True) if "jit" in known else (False,):
            made = runs(rows[name], known.get("jit") or known["onednn"], ON_CPU, is_low)
            run, back = made or (None, [])
            for launch in (each for own in (run, *back) if own for each in own.launches):
                function = getattr(launch, "function", None)
                if isinstance(function, NativeFunction) and function.maps:
                    short = f"{_short(function.body.__module__)}.{function.body.__name__}"
                    low = f" {BFLOAT16}" * is_low
                    found.setdefault(f"{short} of {what}{low}", function)
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


def _short(module: str) -> str:
    return module.removeprefix("mxrun.").removeprefix("ops.")


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
    # Without maps, these functions never run.
    apart = {each.body for each in mapped_functions().values()}
    functions = native_functions().items()
    return {
        **{
            key: each
            for key, each in functions
            if key.partition(" ")[0] not in REFUSED and each.body not in apart
        },
        **mapped_functions(),
        **maps(),
    }
