"""Creation of operators by name, with parameters and inputs set one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mxrun.imperative.symbolic.call import compose_entries
from mxrun.imperative.symbolic.symbol import Symbol
from mxrun.operator.register import OPERATORS


class OperatorCreator:
    """Operator under construction (the `Operator` of MXNet's C++ interface).

        sym.Operator("FullyConnected").set_param("num_hidden", 10).set_input("data", x)
            .create_symbol("fc1")

    Raises UserError for an unknown operator; parameters and inputs are checked by `create_symbol`.
    """

    def __init__(self, operator: str) -> None:
        OPERATORS.get(operator)
        self.operator = operator
        self._parameters: dict[str, Any] = {}
        self._inputs: dict[str, Symbol] = {}
        self._pushed: list[Symbol] = []

    def set_param(self, name: str, value: Any) -> OperatorCreator:
        """Set one parameter; return the operator."""
        self._parameters[name] = value
        return self

    def set_params(self, parameters: Mapping[str, Any]) -> OperatorCreator:
        """Set several parameters; return the operator."""
        self._parameters.update(parameters)
        return self

    def set_input(self, name: str, symbol: Symbol) -> OperatorCreator:
        """Set the input of one argument; return the operator."""
        self._inputs[name] = symbol
        return self

    def push_input(self, symbol: Symbol) -> OperatorCreator:
        """Append an input by position; return the operator."""
        self._pushed.append(symbol)
        return self

    def create_symbol(self, name: str | None = None) -> Symbol:
        """Return the operator as a symbol, un-applied if it has no inputs.

        Raises UserError for parameters and inputs that the operator does not have.
        """
        named = {**self._parameters, **self._inputs}
        return Symbol(compose_entries(self.operator, self._pushed, named, name))
