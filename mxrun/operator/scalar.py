"""Elementwise maps: one scalar Python function for every device.

A map's function is written with Python's operators and the vocabulary below:

    from mxrun.operator import scalar

    def swish_gradient(gradient, x, beta):
        gate = scalar.sigmoid(beta * x)
        return gradient * (gate + beta * x * gate * (1 - gate))

    MAP = scalar.compile(swish_gradient, parameters=("beta",))

The function runs unchanged on Python numbers and NumPy arrays (`evaluate` adds the types).
`compile` turns it into one vectorised loop on the CPU, without temporaries however many operations
it has, and on graphics cards into one kernel. A function that returns a tuple is a map with several
outputs, which one loop computes together: an optimizer's new weight and states, for example.

The compiled forms call the function once, with symbolic values, and compile the operations that it
performs on them. Helper functions, loops over ranges and numbers from an enclosing scope therefore
work. Control flow must not depend on a value: use `where` instead.
"""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.base.device import DeviceDescription
from mxrun.base.dtype import BFLOAT16, FLOAT32
from mxrun.base.errors import Diagnostic, SourceLocation, UserError, location_of
from mxrun.base.near_names import nearest
from mxrun.codegen.map_loop import MapLoop
from mxrun.codegen.scalar_functions import (
    VOCABULARY,
    abs,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctanh,
    cbrt,
    ceil,
    cos,
    cosh,
    digamma,
    erf,
    erfc,
    erfinv,
    exp,
    expm1,
    fix,
    floor,
    fma,
    gamma,
    gammaln,
    gelu,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    pow,
    rcbrt,
    rint,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    softplus,
    sqrt,
    tan,
    tanh,
    trunc,
    where,
)
from mxrun.codegen.scalar_value import (
    FLOATS,
    MAP_DTYPES,
    LoopForm,
    ScalarGraph,
    ScalarValue,
    UnsupportedMap,
    number_dtype,
    rare_contexts,
    to_int64,
)
from mxrun.operator.kernel import OpReqType
from mxrun.operator.native_kernel import LoopPart, Place

__all__ = [
    "abs",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "cbrt",
    "ceil",
    "compile",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "evaluate",
    "exp",
    "expm1",
    "fix",
    "floor",
    "fma",
    "gamma",
    "gammaln",
    "gelu",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "map_of",
    "maximum",
    "minimum",
    "mod",
    "pow",
    "rcbrt",
    "rint",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "where",
]

Array = npt.NDArray[Any]
Function = Callable[..., Any]

_NAMES = (*VOCABULARY, "where", "logical_and", "logical_or", "logical_xor", "logical_not")
_BACKEND = Path(inspect.getfile(MapLoop)).parent
_NOT_ARITHMETIC = ("operand", "convert", "select")


@dataclass(frozen=True, eq=False)
class MapKernel:
    """Traced map of operands (tensors) and parameters of one dtype.

    results: node of each output. result_dtypes: each output's dtype.
    """

    name: str
    operands: tuple[str, ...]
    parameters: tuple[str, ...]
    dtype: str
    graph: ScalarGraph
    results: tuple[int, ...]
    result_dtypes: tuple[str, ...]

    @property
    def operands_read(self) -> frozenset[int]:
        """Indices of the operands on which a result depends."""
        needed = (self.graph.nodes[index] for index in rare_contexts(self.graph, self.results))
        indices = (node.detail for node in needed if node.operation == "operand")
        return frozenset(index for index in indices if isinstance(index, int))

    def operations(self, elements: Collection[int]) -> int:
        """Count the arithmetic operations and functions that differ between elements.

        elements: the operands that have one element per output element.
        """
        nodes, needed = self.graph.nodes, rare_contexts(self.graph, self.results)
        moving = set[int]()
        for index, node in enumerate(nodes):
            own = node.operation == "operand" and node.detail in elements
            if own or not moving.isdisjoint(node.arguments):
                moving.add(index)
        counted = [nodes[index].operation for index in moving & needed.keys()]
        return sum(operation not in _NOT_ARITHMETIC for operation in counted)

    def part(
        self,
        output: Place,
        operands: Sequence[Place],
        count: int,
        parameters: Sequence[float] = (),
        *,
        device: DeviceDescription,
        request: OpReqType = OpReqType.WRITE,
        steps: Sequence[int] | None = None,
        stored: Sequence[str] = (),
        scratch_bytes: int = 0,
    ) -> LoopPart:
        """Return `multi_output_part` for a map with one output."""
        return self.multi_output_part(
            [output],
            operands,
            count,
            parameters,
            device=device,
            requests=[request],
            steps=steps,
            stored=stored,
            scratch_bytes=scratch_bytes,
        )

    def multi_output_part(
        self,
        outputs: Sequence[Place],
        operands: Sequence[Place],
        count: int,
        parameters: Sequence[float] = (),
        *,
        device: DeviceDescription,
        requests: Sequence[OpReqType],
        steps: Sequence[int] | None = None,
        stored: Sequence[str] = (),
        scratch_bytes: int = 0,
        in_place: bool = False,
    ) -> LoopPart:
        """Return the loop over `count` contiguous elements, in one pass.

        steps: 1 for an operand with one element per output element, 0 for an operand whose first
        element is used for all. An output may have the same place as an operand of step 1 with
        elements of the same size. An output with a null request is not computed; at least one has
        another. With the add-to request the loop adds to the output itself: pass
        `without_add_requests(requests)` to `native_kernel`.

        stored: for a float32 map, the dtypes in memory of each output and each operand: bfloat16 or
        float32; float32 for all by default. The loop computes in float32 and rounds once. With the
        add-to request the sum is rounded again, like a sum of two tensors.

        scratch_bytes: size of the scratch space in which outputs or operands are. in_place: whether
        the outputs usually have places of operands; the loop is faster if that is known.
        """
        taken = tuple(steps or (1,) * len(self.operands))
        assert len(operands) == len(taken) == len(self.operands)
        assert len(parameters) == len(self.parameters)
        assert len(outputs) == len(requests) == len(self.results)
        wanted = [index for index, req in enumerate(requests) if req is not OpReqType.NULL]
        narrow: tuple[str, ...] = ()
        if BFLOAT16 in stored:
            assert {self.dtype, *self.result_dtypes} == {FLOAT32}
            own, read = stored[: len(outputs)], stored[len(outputs) :]
            assert len(read) == len(taken)
            narrow = (*(own[index] for index in wanted), *read)
        form = LoopForm(
            self.dtype,
            taken,
            tuple(requests[index] is OpReqType.ADD for index in wanted),
            tuple(self.result_dtypes[index] for index in wanted),
            narrow,
            in_place,
        )
        loop = MapLoop(self.graph, tuple(self.results[index] for index in wanted), form)
        words = (_word(number, self.dtype) for number in parameters)
        places = (*(outputs[index] for index in wanted), *operands)
        return LoopPart(
            loop, (count, *places, *words), device.tasks_for_elements(count), scratch_bytes
        )


def map_of(part: LoopPart) -> MapLoop:
    """Return the map of a part that `MapKernel` has made, for a loop that contains its code."""
    assert isinstance(part.function, MapLoop)
    return part.function


def without_add_requests(requests: Sequence[OpReqType]) -> tuple[OpReqType, ...]:
    """Replace ADD by WRITE in requests to `native_kernel`, for loops that add by themselves."""
    return tuple(OpReqType.WRITE if r is OpReqType.ADD else r for r in requests)


def compile(
    function: Function,
    *,
    operands: Sequence[str] = (),
    parameters: Sequence[str] = (),
    dtype: str = "float32",
    result_dtype: str | None = None,
) -> MapKernel:
    """Trace a function as a map; its arguments are tensors, except the scalars in `parameters`.

    operands: names of the tensors, for a function whose signature does not name them.

    A tuple that the function returns holds the values of several outputs. The function computes in
    `dtype`. Its results are converted to `result_dtype`, if that differs, by C's rules: fractions
    are truncated, and integers that are too large retain their lowest bits. The conversion of a
    floating-point number outside an integer type's range depends on the processor. With an integer
    dtype a parameter is an int64, see `to_int64`, and so is the result of an operation on a tensor
    and a parameter. Machine code is generated only when a part
    is bound by a device. Raises UserError, at the line of the function, for an unsupported
    operation.
    """
    output_dtype = result_dtype or dtype
    names = tuple(operands) or _operands_of(function, tuple(parameters))
    graph, results = _traced(function, names, tuple(parameters), dtype, output_dtype)
    dtypes = (output_dtype,) * len(results)
    return MapKernel(function.__name__, names, tuple(parameters), dtype, graph, results, dtypes)


def evaluate(
    function: Function, operands: Sequence[Array], parameters: Sequence[float] = ()
) -> Any:
    """Evaluate the function on NumPy arrays of one dtype; result and parameters have that dtype.

    The result is an array, or a tuple of arrays if the function returns a tuple.

    With an integer dtype a parameter is an int64: see `to_int64`. A result too large for the
    dtype retains its lowest bits.
    """
    dtype = operands[0].dtype
    numbers: list[Any] = [np.int64(to_int64(number)) for number in parameters]
    if dtype.kind == "f":
        numbers = [dtype.type(number) for number in parameters]
    # Undefined results are infinity or NaN without a warning, as in compiled code.
    with np.errstate(all="ignore"):
        result = function(*operands, *numbers)
        if isinstance(result, tuple):
            # Of a list: each tuple of a generator would leave the interpreter another free tuple.
            return tuple([np.asarray(each).astype(dtype) for each in result])
        return np.asarray(result).astype(dtype)


def _word(number: float, dtype: str) -> int:
    """Encode a parameter as the 64-bit slot of an argument block."""
    if dtype in FLOATS:
        kind, bits = ("<f", "<i") if dtype == "float32" else ("<d", "<q")
        return int(struct.unpack(bits, struct.pack(kind, number))[0])
    return to_int64(number)


def _operands_of(function: Function, parameters: tuple[str, ...]) -> tuple[str, ...]:
    """Return the function's arguments before the parameters."""
    arguments = inspect.signature(function).parameters.values()
    names = tuple(a.name for a in arguments if a.default is inspect.Parameter.empty)
    operands = names[: len(names) - len(parameters)]
    if names != (*operands, *parameters) or not operands:
        raise UserError(
            Diagnostic(
                f"the arguments of the map {function.__name__}",
                place=location_of(function),
                expected="tensors, then the parameters " + ", ".join(parameters),
                got=", ".join(names),
            )
        )
    return operands


def _traced(
    function: Function,
    operands: tuple[str, ...],
    parameters: tuple[str, ...],
    dtype: str,
    result_dtype: str,
) -> tuple[ScalarGraph, tuple[int, ...]]:
    """Return the graph of the function's operations and the nodes of its results."""
    for name in (dtype, result_dtype):
        if name not in MAP_DTYPES:
            raise UserError(
                Diagnostic(f"a map of {name}", expected=" or ".join(MAP_DTYPES), got=name)
            )
    names, graph = (*operands, *parameters), ScalarGraph()
    values = [graph.add("operand", dtype, (), index) for index in range(len(operands))]
    beside = number_dtype(dtype)
    values += [graph.add("parameter", beside, (), index) for index in range(len(parameters))]
    try:
        traced = function(*values)
        results = traced if isinstance(traced, tuple) else (traced,)
        for result in results:
            if not isinstance(result, (ScalarValue, bool, int, float, np.number)):
                raise UnsupportedMap(
                    f"{function.__name__} returns {type(result).__name__}, not a value",
                    "a map returns one value, or a tuple with one value for each output",
                )
        nodes = [
            result if isinstance(result, ScalarValue) else graph.constant(result, dtype)
            for result in results
        ]
        return graph, tuple(node.convert(result_dtype).index for node in nodes)
    except UnsupportedMap as refused:
        hint = _hint_of(refused.name, names) if refused.name else ""
        problem, place = refused.problem, _place_in(function, refused.__traceback__)
        raise UserError(Diagnostic(problem, place, hint=refused.hint or hint)) from None
    except (NameError, AttributeError, TypeError) as error:
        name = getattr(error, "name", None) or ""
        place = _place_in(function, error.__traceback__)
        hint = _hint_of(name, names) or "the vocabulary: " + ", ".join(sorted(_NAMES))
        raise UserError(Diagnostic(str(error), place, hint=hint)) from None


def _hint_of(name: str, arguments: Sequence[str]) -> str:
    """Suggest the scalar function of that name, or names near to it."""
    if name in _NAMES:
        return f"from mxrun.operator.scalar import {name}"
    return nearest(name, [*arguments, *_NAMES])


def _place_in(function: Function, trace: TracebackType | None) -> SourceLocation:
    """Return the innermost line of user code: of a file outside of `backend` and `operator`."""
    place = location_of(function)
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if Path(file).parent not in (_BACKEND, Path(__file__).parent):
            place = SourceLocation(file, trace.tb_lineno, 1)
        trace = trace.tb_next
    return place
