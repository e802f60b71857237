"""Registration data of a simple operator: its functions and the tensors each of them reads."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic.fields import FieldInfo

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError, location_of
from mxrun.base.once import cached_property
from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.operator import OperatorCall
from mxrun.operator.property import GradientKind, ResourceRequest

Array = npt.NDArray[Any]
Function = Callable[..., Any]
# (parameters, shape of each input) -> shape of the output.
ShapeFunction = Callable[..., Shape]
# (spec of each input) -> requests.
ResourceFunction = Callable[[Sequence[TensorSpec]], Sequence[ResourceRequest]]

ENVIRONMENT = "env"
FULL = "register an OperatorProperty (mxrun.operator.property) for more"


class Inplace(Enum):
    """Tensors that may share memory (MXNet's SimpleOpInplaceOption): hints to the planner.

    In each name, the first tensor's memory is reused for the second.
    """

    NONE = "kNoInplace"
    # Forward with one input: the output overwrites it.
    IN_OUT = "kInplaceInOut"
    # Backward with one input: its gradient overwrites the output's.
    OUT_IN = "kInplaceOutIn"
    # Forward with two inputs: the output overwrites lhs.
    LHS_OUT = "kInplaceLhsOut"
    # Backward with two inputs: the gradient of lhs overwrites the output's.
    OUT_LHS = "kInplaceOutLhs"


class Reads(Enum):
    """Tensors that a gradient reads, in the order of its function's arguments."""

    OUT_GRAD = "out_grad"
    OUTPUT = "out_grad, output"
    INPUTS = "out_grad, inputs"


@dataclass(frozen=True)
class Gradient:
    """Gradient function of each input, of the tensors in `reads`; GradientKind.ZERO for zero."""

    reads: Reads
    sides: tuple[Function | GradientKind, ...]


def reads_out_grad(*sides: Function | GradientKind) -> Gradient:
    """Declare each input's gradient as a function of (out_grad)."""
    return Gradient(Reads.OUT_GRAD, sides)


def reads_output(*sides: Function | GradientKind) -> Gradient:
    """Declare each input's gradient as a function of (out_grad, output)."""
    return Gradient(Reads.OUTPUT, sides)


def reads_inputs(*sides: Function | GradientKind) -> Gradient:
    """Declare each input's gradient as a function of (out_grad, data) or (out_grad, lhs, rhs)."""
    return Gradient(Reads.INPUTS, sides)


@dataclass(frozen=True)
class EnvArguments:
    """Parameters and call of a function on arrays (MXNet's EnvArguments).

    `call.space(i)` and `call.random(i)` return the resource of the i-th request.
    """

    parameters: Any
    call: OperatorCall

    @property
    def scalar(self) -> float:
        """Scalar parameter of an operator that was registered with `scalar`."""
        number: float = self.parameters.scalar
        return number


@dataclass(frozen=True, eq=False)
class Formula:
    """Function of tensors and of numbers, which are parameters of the same names.

    The function of a map operates on scalars, see `mxrun.operator.scalar`. Any other function
    receives EnvArguments and arrays, and its value is stored according to the request.
    """

    function: Function
    tensors: tuple[str, ...]
    numbers: tuple[str, ...]
    is_map: bool

    def values(self, parameters: Parameters) -> tuple[float, ...]:
        """Return the values of the function's numbers in `parameters`."""
        return tuple(float(getattr(parameters, name)) for name in self.numbers)

    def array(
        self, tensors: Sequence[Array], parameters: Parameters, call: OperatorCall
    ) -> Array | np.generic:
        """Evaluate the function on arrays."""
        if self.is_map:
            found: Array = scalar.evaluate(self.function, tensors, self.values(parameters))
            return found
        value = self.function(EnvArguments(parameters, call), *tensors)
        if isinstance(value, (tuple, list)):
            problem = f"{self.function.__name__} returns {len(value)} values"
            raise entry_error(self.function, problem, "one array", hint=FULL)
        array: Array | np.generic = value
        return array

    def kernel(self, dtype: str) -> scalar.MapKernel:
        """Return the map for `dtype`; raises UserError for an operation that the dtype does not
        support.
        """
        if dtype not in self._kernels:
            self._kernels[dtype] = scalar.compile(
                self.function, operands=self.tensors, parameters=self.numbers, dtype=dtype
            )
        return self._kernels[dtype]

    @cached_property
    def _kernels(self) -> dict[str, scalar.MapKernel]:
        """Cached maps by dtype."""
        return {}

    @property
    def traced(self) -> scalar.MapKernel:
        """Map of float32, whose graph shows the operands that the function reads."""
        return self.kernel("float32")

    @cached_property
    def reads(self) -> tuple[bool, ...]:
        """True for each tensor on which the value depends; always True for functions on arrays."""
        if not self.is_map:
            return (True,) * len(self.tensors)
        read = self.traced.operands_read
        return tuple(index in read for index in range(len(self.tensors)))

    @cached_property
    def passes_first(self) -> bool:
        """True if the map returns its first tensor unchanged."""
        kernel = self.traced
        node = kernel.graph.nodes[kernel.results[0]]
        return node.operation == "operand" and node.detail == 0


@cache
def joint(*maps: Formula) -> Formula:
    """Return maps of the same tensors as one map with an output for each."""
    if len(maps) == 1:
        return maps[0]
    tensors = maps[0].tensors
    numbers = tuple(dict.fromkeys(name for each in maps for name in each.numbers))

    def results(*arguments: Any) -> tuple[Any, ...]:
        read = arguments[: len(tensors)]
        known = dict(zip(numbers, arguments[len(tensors) :], strict=True))
        return tuple(each.function(*read, *(known[n] for n in each.numbers)) for each in maps)

    return Formula(results, tensors, numbers, True)


@dataclass(frozen=True, eq=False)
class SimpleEntry:
    """Simple operator: one or two inputs, one output.

    gradients: for each input a formula, ZERO or NONE. inplace: None for maps, which permit all safe
    pairs.
    """

    arguments: tuple[str, ...]
    forward: Formula
    reads: Reads
    gradients: tuple[Formula | GradientKind, ...]
    inplace: tuple[Inplace, ...] | None
    shape: ShapeFunction | None
    resource: tuple[ResourceRequest, ...] | ResourceFunction

    @property
    def computed(self) -> tuple[Formula, ...]:
        """Gradients that are computed by a function."""
        return tuple(each for each in self.gradients if isinstance(each, Formula))

    def reads_parameter(self, number: str) -> bool:
        """Return whether a function can read the parameter `number`.

        A function on arrays can read every parameter from `env`.
        """
        formulas = (self.forward, *self.computed)
        return any(not formula.is_map or number in formula.numbers for formula in formulas)


def formula_of(
    function: Function, parameters: type[Parameters], tensors: Sequence[str] | None, owner: str
) -> Formula:
    """Return the function as a formula; raises UserError, at its line, if its arguments are
    invalid.

    tensors: the names of the tensors that it receives; None for a forward function, whose own
    argument names are used.
    """
    names = _argument_names(function, owner)
    is_map = names[:1] != [ENVIRONMENT]
    if not is_map:
        names = names[1:]
    known = [name for name in names if is_map and _has(parameters, name)]
    # The first len(tensors) arguments are tensors, whatever their names are.
    given = names[: len(tensors)] if tensors is not None else [n for n in names if n not in known]
    numbers = names[len(given) :]
    if names[: len(given)] != given or (tensors is not None and len(given) != len(tensors)):
        expected = ", ".join(tensors or given)
        raise entry_error(function, f"the arguments of {owner}", f"{expected}, then numbers", names)
    unknown = [name for name in numbers if name not in known]
    if unknown:
        allowed = ", ".join(parameters.model_fields) or "none"
        expected = f"{', '.join(tensors or given)}; numbers among its parameters: {allowed}"
        raise entry_error(function, f"{owner} gets {', '.join(unknown)}", expected, names)
    for name in numbers:
        if name in parameters.model_fields and not is_number(parameters.model_fields[name]):
            problem = f"{owner} is a map, whose parameter {name!r} is not a number"
            hint = "a function on arrays, def f(env, ...), can read it from env.parameters"
            raise entry_error(function, problem, "a number", hint=hint)
    formula = Formula(function, tuple(given), tuple(numbers), is_map)
    if is_map and given:
        # Trace now, so that an unsupported operation is reported at registration.
        results = len(formula.traced.results)
        if results != 1:
            problem = f"{function.__name__} returns {results} values"
            raise entry_error(function, problem, "one value", hint=FULL)
    return formula


def entry_error(
    function: Function, problem: str, expected: str = "", got: object = "", hint: str = ""
) -> UserError:
    """Return the UserError of an invalid registration, at the function's line."""
    place = location_of(function) if hasattr(function, "__code__") else None
    if isinstance(got, list):
        got = f"({', '.join(got)})"
    return UserError(Diagnostic(problem, place, expected, str(got), hint=hint))


def _has(parameters: type[Parameters], name: str) -> bool:
    """Return whether the parameters have a field or a property of that name."""
    return name in parameters.model_fields or isinstance(getattr(parameters, name, None), property)


def is_number(annotation: Any) -> bool:
    """Return whether a field or type admits numbers only."""
    if isinstance(annotation, FieldInfo):
        return is_number(annotation.annotation)
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return is_number(parts[0])
    if origin is typing.Literal:
        return all(isinstance(value, (int, float)) for value in parts)
    if origin in (typing.Union, types.UnionType):
        return all(map(is_number, parts))
    return annotation in (float, int, bool)


def _argument_names(function: Function, owner: str) -> list[str]:
    if not isinstance(function, types.FunctionType):
        problem = f"{owner} is {type(function).__name__}"
        raise entry_error(function, problem, "a Python function (def or lambda)")
    code = function.__code__
    starred = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if starred or code.co_kwonlyargcount or function.__defaults__:
        problem = f"{owner} has starred, keyword-only or default arguments"
        raise entry_error(function, problem, "plain arguments by name")
    return list(code.co_varnames[: code.co_argcount])
