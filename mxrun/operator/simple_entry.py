"""What one registration of a simple operator says: its functions and what each of them reads."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic.fields import FieldInfo

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.params import Parameters
from mxrun.base.tensor import Shape, TensorSpec
from mxrun.operator import scalar
from mxrun.operator.operator import OpContext
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
    """Which tensors may share memory (MXNet's SimpleOpInplaceOption): hints to the planner.

    The first two of each pair of letters say who gives its memory to whom.
    """

    NONE = "kNoInplace"
    # Forward of one input: the output over it.
    IN_OUT = "kInplaceInOut"
    # Backward of one input: its gradient over the output's.
    OUT_IN = "kInplaceOutIn"
    # Forward of two inputs: the output over the left one.
    LHS_OUT = "kInplaceLhsOut"
    # Backward of two inputs: the left one's gradient over the output's.
    OUT_LHS = "kInplaceOutLhs"


class Reads(Enum):
    """The tensors that a gradient reads, in the order of its function's arguments."""

    OUT_GRAD = "out_grad"
    OUTPUT = "out_grad, output"
    INPUTS = "out_grad, inputs"


@dataclass(frozen=True)
class Gradient:
    """The gradient of each input, of out_grad and what else `reads` names; ZERO for one without."""

    reads: Reads
    sides: tuple[Function | GradientKind, ...]


def reads_out_grad(*sides: Function | GradientKind) -> Gradient:
    """A gradient for each input that is a function of (out_grad)."""
    return Gradient(Reads.OUT_GRAD, sides)


def reads_output(*sides: Function | GradientKind) -> Gradient:
    """A gradient for each input that is a function of (out_grad, output)."""
    return Gradient(Reads.OUTPUT, sides)


def reads_inputs(*sides: Function | GradientKind) -> Gradient:
    """A gradient for each input that is a function of (out_grad, data) or (out_grad, lhs, rhs)."""
    return Gradient(Reads.INPUTS, sides)


@dataclass(frozen=True)
class EnvArguments:
    """What a function on arrays is told beside its tensors (MXNet's EnvArguments).

    `context.space(i)` and `context.random(i)` answer the i-th resource request.
    """

    parameters: Any
    context: OpContext

    @property
    def scalar(self) -> float:
        """The operator's number, of one that was registered with `scalar`."""
        number: float = self.parameters.scalar
        return number


@dataclass(frozen=True, eq=False)
class Formula:
    """A function of tensors and, by their parameters' names, numbers.

    A map's function is one of scalars, see `mxrun.operator.scalar`. Otherwise it gets
    EnvArguments and whole arrays, and its value is stored as the request says.
    """

    function: Function
    tensors: tuple[str, ...]
    numbers: tuple[str, ...]
    is_map: bool

    def values(self, parameters: Parameters) -> tuple[float, ...]:
        """The numbers under these parameters."""
        return tuple(float(getattr(parameters, name)) for name in self.numbers)

    def array(
        self, tensors: Sequence[Array], parameters: Parameters, context: OpContext
    ) -> Array | np.generic:
        """The function's value on arrays."""
        if self.is_map:
            return scalar.evaluate(self.function, tensors, self.values(parameters))
        value = self.function(EnvArguments(parameters, context), *tensors)
        if isinstance(value, (tuple, list)):
            problem = f"{self.function.__name__} returns {len(value)} values"
            raise refused(self.function, problem, "one array", hint=FULL)
        array: Array | np.generic = value
        return array

    def kernel(self, dtype: str) -> scalar.MapKernel:
        """The compiled map; raises UserError for what has no place in a map of this type."""
        if dtype not in self._kernels:
            kernel = scalar.compile(self.function, parameters=self.numbers, dtype=dtype)
            self._kernels[dtype] = kernel
        return self._kernels[dtype]

    @cached_property
    def _kernels(self) -> dict[str, scalar.MapKernel]:
        """The maps that were compiled so far, by their type."""
        return {}

    @property
    def traced(self) -> scalar.MapKernel:
        """The map of float32, which tells what the function reads."""
        return self.kernel("float32")

    @cached_property
    def reads(self) -> tuple[bool, ...]:
        """For each tensor, whether the value depends on it; it may on all that is no map's."""
        if not self.is_map:
            return (True,) * len(self.tensors)
        kernel = self.traced
        reached, open_nodes = set[int](), [kernel.result]
        while open_nodes:
            index = open_nodes.pop()
            if index not in reached:
                reached.add(index)
                open_nodes += kernel.graph.nodes[index].arguments
        nodes = (kernel.graph.nodes[index] for index in reached)
        found = {node.detail for node in nodes if node.operation == "operand"}
        return tuple(index in found for index in range(len(self.tensors)))

    @cached_property
    def passes_first(self) -> bool:
        """Whether the map's value is its first tensor as it is."""
        kernel = self.traced
        node = kernel.graph.nodes[kernel.result]
        return node.operation == "operand" and node.detail == 0

    def cuda_source(self, name: str, dtype: str = "float32") -> str:
        """CUDA C of the map as the kernel `name`."""
        function = self.function
        named = types.FunctionType(
            function.__code__, function.__globals__, name, None, function.__closure__
        )
        return scalar.cuda_source(named, parameters=self.numbers, dtype=dtype)


@dataclass(frozen=True, eq=False)
class SimpleEntry:
    """A simple operator: one or two inputs, one output.

    gradients: a formula for each input, or ZERO or NONE. inplace: None where the functions are
    maps, which permit all that is safe.
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
        """The gradients that there are functions for."""
        return tuple(each for each in self.gradients if isinstance(each, Formula))

    def takes(self, number: str) -> bool:
        """Whether a function gets that parameter; one on whole arrays can find it by itself."""
        formulas = (self.forward, *self.computed)
        return any(not formula.is_map or number in formula.numbers for formula in formulas)

    def cuda_sources(self, name: str, dtype: str = "float32") -> dict[str, str]:
        """CUDA C of the operator's maps by the names of their kernels; empty of what is no map.

        The kernels are `map_NAME` and `map_NAME_gradient_of_ARGUMENT`: without the prefix they
        would be called as CUDA's own functions are.
        """
        formulas: dict[str, Formula] = {f"map_{name}": self.forward}
        for argument, gradient in zip(self.arguments, self.gradients, strict=True):
            if isinstance(gradient, Formula):
                formulas[f"map_{name}_gradient_of_{argument}"] = gradient
        return {
            kernel: formula.cuda_source(kernel, dtype)
            for kernel, formula in formulas.items()
            if formula.is_map
        }


def formula_of(
    function: Function, parameters: type[Parameters], tensors: Sequence[str] | None, owner: str
) -> Formula:
    """The function as a formula; raises UserError, naming its line, where its arguments do not fit.

    tensors: the names of the tensors that it gets; None for a forward, whose own they are.
    """
    names = _argument_names(function, owner)
    is_map = names[:1] != [ENVIRONMENT]
    if not is_map:
        names = names[1:]
    known = [name for name in names if is_map and _has(parameters, name)]
    # As many as are asked for are tensors whatever they are called.
    given = names[: len(tensors)] if tensors is not None else [n for n in names if n not in known]
    numbers = names[len(given) :]
    if names[: len(given)] != given or (tensors is not None and len(given) != len(tensors)):
        wanted = ", ".join(tensors or given)
        raise refused(function, f"the arguments of {owner}", f"{wanted}, then numbers", names)
    unknown = [name for name in numbers if name not in known]
    if unknown:
        allowed = ", ".join(parameters.model_fields) or "none"
        expected = f"{', '.join(tensors or given)}; numbers among its parameters: {allowed}"
        raise refused(function, f"{owner} gets {', '.join(unknown)}", expected, names)
    for name in numbers:
        if name in parameters.model_fields and not _is_number(parameters.model_fields[name]):
            problem = f"{owner} is a map, whose parameter {name!r} is no number"
            hint = "a function on whole arrays, def f(env, ...), finds it in env.parameters"
            raise refused(function, problem, "a number", hint=hint)
    formula = Formula(function, tuple(given), tuple(numbers), is_map)
    if is_map and given:
        # What has no place in a map is refused where it is registered.
        _ = formula.traced
    return formula


def refused(
    function: Function, problem: str, expected: str = "", got: object = "", hint: str = ""
) -> UserError:
    """The error of a registration, at the function's line."""
    code = getattr(function, "__code__", None)
    place = SourceLocation(code.co_filename, code.co_firstlineno, 1) if code is not None else None
    if isinstance(got, list):
        got = f"({', '.join(got)})"
    return UserError(Diagnostic(problem, place, expected, str(got), hint))


def _has(parameters: type[Parameters], name: str) -> bool:
    """Whether the parameters have a field of that name, or a number that follows from them."""
    return name in parameters.model_fields or isinstance(getattr(parameters, name, None), property)


def _is_number(annotation: Any) -> bool:
    """Whether all that a field or a type holds is a number."""
    if isinstance(annotation, FieldInfo):
        return _is_number(annotation.annotation)
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _is_number(parts[0])
    if origin is typing.Literal:
        return all(isinstance(value, (int, float)) for value in parts)
    if origin in (typing.Union, types.UnionType):
        return all(map(_is_number, parts))
    return annotation in (float, int, bool)


def _argument_names(function: Function, owner: str) -> list[str]:
    if not isinstance(function, types.FunctionType):
        problem = f"{owner} is {type(function).__name__}"
        raise refused(function, problem, "a Python function (def or lambda)")
    code = function.__code__
    starred = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    if starred or code.co_kwonlyargcount or function.__defaults__:
        problem = f"{owner} has starred, keyword-only or default arguments"
        raise refused(function, problem, "plain arguments by name")
    return list(code.co_varnames[: code.co_argcount])
