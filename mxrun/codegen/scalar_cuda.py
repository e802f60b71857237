"""CUDA C code of a map's graph: a kernel with a grid-stride loop.

The functions are CUDA's own; composites that CUDA lacks are expanded by their formulas. The source
needs no header.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mxrun.codegen.scalar_functions import expanded
from mxrun.codegen.scalar_value import BOOL, FLOATS, LoopForm, ScalarGraph, ScalarNode, number_dtype

_TYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    BOOL: "bool",
}
# Functions with the same name in CUDA, up to the suffix f for float.
_SAME = (
    *("exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("sqrt", "rsqrt", "cbrt", "rcbrt", "pow", "erf", "erfc", "erfinv", "floor", "ceil", "trunc"),
    *("rint", "round", "fma"),
)
_CALLS = {
    **{name: name for name in _SAME},
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "fix": "trunc",
    "gamma": "tgamma",
    "gammaln": "lgamma",
}
_ROUNDING_FUNCTIONS = ("floor", "ceil", "trunc", "fix", "rint", "round")
_EXPRESSIONS = {
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "negative": "-{0}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "shift_left": "{0} << {1}",
    "shift_right": "{0} >> {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "select": "{0} ? {1} : {2}",
    "convert": "{0}",
    "abs": "{0} < 0 ? -{0} : {0}",
    "sign": "({0} > 0) - ({0} < 0)",
    "maximum": "{0} > {1} || {0} != {0} ? {0} : {1}",
    "minimum": "{0} < {1} || {0} != {0} ? {0} : {1}",
    "isnan": "{0} != {0}",
    "isinf": "{0} - {0} != {0} - {0} && {0} == {0}",
    "isfinite": "{0} - {0} == {0} - {0}",
}


def source(
    name: str,
    graph: ScalarGraph,
    results: Sequence[int],
    form: LoopForm,
    operands: Sequence[str],
    parameters: Sequence[str],
) -> str:
    """Return the source of the kernel `name(count, outputs..., operands..., parameters...)`.

    The names of operands and parameters get a trailing underscore. One output is called `output`,
    several `output0`, `output1`, ... All operands of an element are read before its outputs are
    written.
    """
    graph, results = expanded(graph, results, _runs)
    kind = _TYPES[form.dtype]
    number = _TYPES[number_dtype(form.dtype)]
    kinds = [_TYPES[dtype] for dtype in form.output_dtypes]
    # No argument may have the name of a variable below or a keyword of C++.
    operands, parameters = ([f"{name}_" for name in group] for group in (operands, parameters))
    outputs = ["output"] if len(results) == 1 else [f"output{i}" for i in range(len(results))]
    signature = ["long long count"]
    signature += [f"{own} *{output}" for own, output in zip(kinds, outputs, strict=True)]
    signature += [f"const {kind} *{operand}" for operand in operands]
    signature += [f"{number} {parameter}" for parameter in parameters]
    # An element of an operand is the value of its node.
    read = [f"{o}[{'i' if step else '0'}]" for o, step in zip(operands, form.steps, strict=True)]
    lines = [
        f'extern "C" __global__ void {name}({", ".join(signature)}) {{',
        "    const long long stride = (long long)gridDim.x * blockDim.x;",
        "    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;",
        "         i += stride) {",
    ]
    for index, node in enumerate(graph.nodes):
        text = _expression(node, graph, (*read, *parameters), len(operands))
        lines.append(f"        const {_TYPES[node.dtype]} v{index} = {text};")
    for output, result, adds in zip(outputs, results, form.adds, strict=True):
        lines.append(f"        {output}[i] {'+=' if adds else '='} v{result};")
    lines += ["    }", "}", ""]
    return "\n".join(lines)


def _runs(operation: str) -> bool:
    """Return whether CUDA has the function, or C an expression for it."""
    return operation in _CALLS or operation in _EXPRESSIONS or operation == "mod"


def _expression(node: ScalarNode, graph: ScalarGraph, names: Sequence[str], operands: int) -> str:
    if node.operation == "constant":
        return _literal(node)
    if node.operation in ("operand", "parameter"):
        assert isinstance(node.detail, int)
        return names[node.detail + (operands if node.operation == "parameter" else 0)]
    arguments = [f"v{index}" for index in node.arguments]
    source_type = graph.nodes[node.arguments[0]].dtype
    if node.operation in _ROUNDING_FUNCTIONS and source_type not in FLOATS:
        return arguments[0]
    if node.operation == "abs" and source_type in FLOATS:
        return f"fabs{'f' if source_type == 'float32' else ''}({arguments[0]})"
    if node.operation == "sign" and source_type in FLOATS:
        return "{0} == {0} ? ({0} > 0) - ({0} < 0) : {0}".format(*arguments)
    suffix = "f" if node.dtype == "float32" else ""
    if node.operation == "mod":
        rest, sign = "fmod{2}({0}, {1})".format(*arguments, suffix), f"copysign{suffix}"
        y = arguments[1]
        return f"{sign}({rest} == {sign}({rest}, {y}) ? {rest} : {rest} + {y}, {y})"
    if node.operation in _CALLS:
        return f"{_CALLS[node.operation]}{suffix}({', '.join(arguments)})"
    return _EXPRESSIONS[node.operation].format(*arguments)


def _literal(node: ScalarNode) -> str:
    number = node.detail
    assert isinstance(number, (bool, int, float))
    if node.dtype == BOOL:
        return "true" if number else "false"
    if node.dtype not in FLOATS:
        # The smallest integer has no literal: C parses it as the negation of one too large.
        return f"({number + 1}LL - 1)" if number < 0 else f"{number}LL"
    if math.isfinite(number):
        return float(number).hex() + ("f" if node.dtype == "float32" else "")
    if node.dtype == "float32":
        word = "7fc00000" if math.isnan(number) else "7f800000" if number > 0 else "ff800000"
        return f"__int_as_float(0x{word})"
    word = "7ff8" if math.isnan(number) else "7ff0" if number > 0 else "fff0"
    return f"__longlong_as_double(0x{word}000000000000LL)"
