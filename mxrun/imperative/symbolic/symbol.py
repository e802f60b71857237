"""Symbol: networks as values with MXNet's methods, composed by calls and arithmetic."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mxrun.base.context import Context
from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import write_text
from mxrun.base.tensor import PartialShape, Shape
from mxrun.graph import symbol as graph
from mxrun.graph.attributes import shown
from mxrun.graph.compose import input_names, require_variables
from mxrun.graph.infer import InferredSpecs, infer
from mxrun.graph.json import load
from mxrun.graph.node import Node, NodeEntry
from mxrun.imperative.arrays.creation import dtype_name
from mxrun.imperative.symbolic.arguments import GradientRequests
from mxrun.imperative.symbolic.binding import executor_of_arrays, executor_of_shapes
from mxrun.imperative.symbolic.call import compose_entries
from mxrun.imperative.symbolic.debug import debug_text
from mxrun.imperative.symbolic.executor import Executor
from mxrun.imperative.symbolic.fluent import SymbolMethods
from mxrun.operator.shape import is_known

Shapes = list[Shape]
Types = list[type[np.generic] | None]
_NUMBERS = (int, float, np.number)


class Symbol(SymbolMethods, graph.Symbol):
    """Network, or part of one: an immutable list of outputs of nodes.

    Operators on symbols (`mxrun.sym.Convolution`, `+`, ...) give symbols. Calling a symbol composes
    it: `net(data=other)` gives an un-applied operator its inputs, and replaces variables of any
    other symbol by their names.
    """

    # -- composition ---------------------------------------------------------------------------

    def __call__(self, *symbols: Symbol, name: str | None = None, **named: Symbol) -> Symbol:
        """Return the symbol composed with inputs; this one stays as it is.

        symbols: inputs of an un-applied operator by position. named: by argument, or by the name of
        the variable that they replace. name: new name of the operator.

        Raises UserError for a name that the symbol does not have, or for inputs by position of a
        symbol that has its inputs.
        """
        given = dict(named)
        if symbols:
            given |= self._positioned(symbols)
        for key, value in given.items():
            if not isinstance(value, graph.Symbol):
                problem, got = f"the input {key!r} is no symbol", type(value).__name__
                raise UserError(Diagnostic(problem, expected="a symbol", got=got))
        return self.compose(given, name)

    def _positioned(self, symbols: Sequence[Symbol]) -> dict[str, Symbol]:
        prop = self.heads[0].node.prop
        if not self.is_unapplied or prop is None:
            hint = f"name the variables that they replace: {', '.join(self.list_arguments())}"
            raise UserError(Diagnostic("the symbol has its inputs already", hint=hint))
        names = input_names(prop)
        if len(symbols) > len(names):
            expected = ", ".join(names)
            raise UserError(Diagnostic("too many inputs", expected=expected, got=str(len(symbols))))
        return dict(zip(names, symbols, strict=False))

    @property
    def name(self) -> str | None:
        """Name of the node; None for a group of several."""
        nodes = {head.node for head in self.heads}
        return self.heads[0].node.name if len(nodes) == 1 else None

    def __repr__(self) -> str:
        if self.name is None:
            return f"<Symbol group [{', '.join(head.node.name for head in self.heads)}]>"
        if self.is_unapplied:
            return f"<Symbol {self.name}: un-applied {self.heads[0].node.operator}>"
        return f"<Symbol {self.name}>"

    def debug_str(self) -> str:
        """Return all nodes with their inputs and parameters as text."""
        return debug_text(self.applied())

    # -- attributes ----------------------------------------------------------------------------

    def attr(self, key: str) -> str | None:
        """Return an attribute or a parameter of the node as a string, or None."""
        return shown(self._node("attr")).get(key)

    def list_attr(self) -> dict[str, str]:
        """Return the parameters and attributes of the node as strings."""
        return shown(self._node("list_attr"))

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """Return the parameters and attributes of every node that has any, by its name."""
        found = {node.name: shown(node) for node in self.nodes}
        return {name: attributes for name, attributes in found.items() if attributes}

    def _node(self, method: str) -> Node:
        if self.name is None:
            hint = "choose one with [index] or [name]"
            raise UserError(Diagnostic(f"a group has no {method}()", hint=hint))
        return self.heads[0].node

    # -- inference -----------------------------------------------------------------------------

    def infer_shape(
        self, *shapes: Shape | None, **named: Shape
    ) -> tuple[Shapes | None, Shapes | None, Shapes | None]:
        """Return the shapes of arguments, outputs and auxiliary states.

        shapes: known ones in the order of `list_arguments`, or by name; 0 is an unknown size.
        Returns three times None, with a warning, where they are not enough. Raises UserError for a
        contradiction.
        """
        inferred = self._inferred(shapes, named)
        missing = [entry.name for entry in self._variables() if not is_known(_of(inferred, entry))]
        if missing or not all(is_known(_of(inferred, head)) for head in self.applied().heads):
            text = f"shapes of these variables are unknown: {', '.join(missing)}"
            warnings.warn(text, stacklevel=2)
            return None, None, None
        return self._listed(inferred)

    def infer_shape_partial(
        self, *shapes: Shape | None, **named: Shape
    ) -> tuple[Shapes, Shapes, Shapes]:
        """Return what is known as `infer_shape`: () for an unknown rank, 0 for an unknown size."""
        return self._listed(self._inferred(shapes, named))

    def infer_type(
        self, *types: Any, **named: Any
    ) -> tuple[Types | None, Types | None, Types | None]:
        """Return the data types of arguments, outputs and auxiliary states as NumPy's types.

        types: known ones in the order of `list_arguments`, or by name. Returns three times None,
        with a warning, where they are not enough. Raises UserError for a type that an operator does
        not support.
        """
        arguments, outputs, states = self.infer_type_partial(*types, **named)
        unknown = [
            name
            for name, dtype in zip(self.list_arguments(), arguments, strict=True)
            if dtype is None
        ]
        if unknown:
            text = f"types of these arguments are unknown: {', '.join(unknown)}"
            warnings.warn(text, stacklevel=2)
            return None, None, None
        return arguments, outputs, states

    def infer_type_partial(self, *types: Any, **named: Any) -> tuple[Types, Types, Types]:
        """Return what is known, as `infer_type`; None for unknown types of others than states."""
        given = self._by_name(types, named)
        known = {name: dtype_name(dtype) for name, dtype in given.items()}
        inferred = infer(self.applied().heads, {}, known)
        if inferred.mistyped:
            raise UserError(inferred.mistyped)

        def listed(entries: Sequence[NodeEntry]) -> Types:
            return [
                None if entry in inferred.assumed else numpy_dtype(inferred.types[entry]).type
                for entry in entries
            ]

        # A state that nothing decides is float32.
        states = [numpy_dtype(inferred.types[entry]).type for entry in self._states()]
        return listed(self._arguments()), listed(self.applied().heads), [*states]

    def _inferred(
        self, shapes: Sequence[Shape | None], named: Mapping[str, Shape]
    ) -> InferredSpecs:
        given = self._by_name(shapes, named)
        known = {
            name: tuple(size if size > 0 else None for size in shape)
            for name, shape in given.items()
            if len(shape)
        }
        inferred = infer(self.applied().heads, known)
        if inferred.contradictions:
            raise UserError(inferred.contradictions)
        return inferred

    def _by_name(self, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        names = self.list_arguments()
        if positional and named:
            raise UserError(Diagnostic("give all by position or all by name"))
        if len(positional) > len(names):
            expected, got = f"at most {len(names)}: {', '.join(names)}", str(len(positional))
            raise UserError(Diagnostic("more values than arguments", expected=expected, got=got))
        require_variables(named, self.list_inputs())
        given = {**dict(zip(names, positional, strict=False)), **named}
        return {name: value for name, value in given.items() if value is not None}

    def _variables(self) -> list[NodeEntry]:
        return [NodeEntry(node) for node in self.nodes if node.is_variable]

    def _arguments(self) -> list[NodeEntry]:
        names = set(self.list_arguments())
        return [entry for entry in self._variables() if entry.node.name in names]

    def _states(self) -> list[NodeEntry]:
        by_name = {entry.node.name: entry for entry in self._variables()}
        return [by_name[name] for name in self.list_auxiliary_states()]

    def _listed(self, inferred: InferredSpecs) -> tuple[Shapes, Shapes, Shapes]:
        def listed(entries: Sequence[NodeEntry]) -> Shapes:
            return [tuple(size or 0 for size in _of(inferred, each) or ()) for each in entries]

        return listed(self._arguments()), listed(self.applied().heads), listed(self._states())

    # -- files ---------------------------------------------------------------------------------

    def save(self, fname: str | Path) -> None:
        """Write the graph to a file in MXNet's JSON; raises UserError if it cannot be written."""
        write_text(Path(fname), self.tojson())

    def __reduce__(self) -> tuple[Any, ...]:
        return load_json, (self.tojson(),)

    def __copy__(self) -> Symbol:
        return self

    def __deepcopy__(self, memo: object) -> Symbol:
        return self

    # -- execution -----------------------------------------------------------------------------

    def simple_bind(
        self,
        ctx: Context | None = None,
        grad_req: GradientRequests = "write",
        type_dict: Mapping[str, Any] | None = None,
        **shapes: Shape,
    ) -> Executor:
        """Return an executor with arrays of its own for all arguments, gradients and states.

        grad_req: `write`, `add` or `null`, for all arguments, a list in their order, or by name; a
        dict leaves out those with `null`. type_dict: data types by argument. shapes: of arguments
        by name. Raises UserError where they do not decide every shape.
        """
        return executor_of_shapes(self.applied(), ctx, grad_req, type_dict or {}, shapes)

    def bind(
        self,
        ctx: Context | None,
        args: Sequence[Any] | Mapping[str, Any],
        args_grad: Sequence[Any] | Mapping[str, Any] | None = None,
        grad_req: GradientRequests = "write",
        aux_states: Sequence[Any] | Mapping[str, Any] | None = None,
    ) -> Executor:
        """Return an executor that computes in the given arrays.

        args, args_grad, aux_states: arrays in order or by name; an argument without an array in
        args_grad has no gradient. Raises UserError for a missing array and for shapes that do not
        fit.
        """
        return executor_of_arrays(self.applied(), ctx, args, args_grad, grad_req, aux_states)

    def eval(self, ctx: Context | None = None, **args: Any) -> list[Any]:
        """Return the outputs for arguments given as arrays by name."""
        return self.bind(ctx, args, grad_req="null").forward()

    # -- arithmetic ----------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return binary(self, other, "_Plus", "_PlusScalar")

    def __radd__(self, other: Any) -> Any:
        return self + other

    def __sub__(self, other: Any) -> Any:
        return binary(self, other, "_Minus", "_MinusScalar")

    def __rsub__(self, other: Any) -> Any:
        return with_number(self, other, "_RMinusScalar")

    def __mul__(self, other: Any) -> Any:
        return binary(self, other, "_Mul", "_MulScalar")

    def __rmul__(self, other: Any) -> Any:
        return self * other

    def __truediv__(self, other: Any) -> Any:
        return binary(self, other, "_Div", "_DivScalar")

    def __rtruediv__(self, other: Any) -> Any:
        return with_number(self, other, "_RDivScalar")

    def __mod__(self, other: Any) -> Any:
        return binary(self, other, "_Mod", "_ModScalar")

    def __rmod__(self, other: Any) -> Any:
        return with_number(self, other, "_RModScalar")

    def __pow__(self, other: Any) -> Any:
        return binary(self, other, "_Power", "_PowerScalar")

    def __rpow__(self, other: Any) -> Any:
        return with_number(self, other, "_rpower_scalar")

    def __neg__(self) -> Symbol:
        negated: Symbol = self * -1.0
        return negated

    def __abs__(self) -> Symbol:
        return Symbol(compose_entries("abs", [self], {}))

    def __eq__(self, other: object) -> Any:
        return binary(self, other, "_equal", "_equal_scalar")

    def __ne__(self, other: object) -> Any:
        return binary(self, other, "_not_equal", "_not_equal_scalar")

    def __lt__(self, other: Any) -> Any:
        return binary(self, other, "_lesser", "_lesser_scalar")

    def __le__(self, other: Any) -> Any:
        return binary(self, other, "_lesser_equal", "_lesser_equal_scalar")

    def __gt__(self, other: Any) -> Any:
        return binary(self, other, "_greater", "_greater_scalar")

    def __ge__(self, other: Any) -> Any:
        return binary(self, other, "_greater_equal", "_greater_equal_scalar")

    def astype(self, dtype: Any) -> Symbol:
        """Return the symbol converted to another data type."""
        return Symbol(compose_entries("Cast", [self], {"dtype": dtype}))

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise UserError(
            Diagnostic("a symbol has no truth value", hint="a comparison gives a symbol of its own")
        )


def load_json(json_str: str) -> Symbol:
    """Return the symbol in MXNet's JSON. Raises UserError naming a node that cannot be used."""
    return Symbol(load(json_str))


def _of(inferred: InferredSpecs, entry: NodeEntry) -> PartialShape:
    return inferred.shapes[entry]


def binary(left: graph.Symbol, right: Any, operator: str, with_scalar: str) -> Any:
    """Return an operator on two symbols, or on a symbol and a number."""
    if isinstance(right, graph.Symbol):
        return Symbol(compose_entries(operator, [left, right], {}))
    return with_number(left, right, with_scalar)


def with_number(symbol: graph.Symbol, number: Any, operator: str) -> Any:
    """Return an operator on a symbol and a number; NotImplemented for any other operand."""
    if not isinstance(number, _NUMBERS):
        return NotImplemented
    return Symbol(compose_entries(operator, [symbol], {"scalar": number}))
