"""Functions of operators on symbols, generated from the registry.

`operator_function(NAME)` returns the function of any registered operator, of a plugin's too:

    function(*symbols, name=None, attr=None, **symbols_or_parameters)

Symbols come first, in the operator's order, or by name; parameters are given by name, or by
position where MXNet has the same order. Without symbols the operator stays un-applied.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from mxrun.base.errors import UserError
from mxrun.base.once import once
from mxrun.graph.attributes import normalised
from mxrun.imperative.symbolic.call import cached_signature, compose_entries
from mxrun.imperative.symbolic.symbol import Symbol
from mxrun.operator.register import OPERATORS
from mxrun.operator.signature import OperatorSignature


def operator_function(name: str) -> Callable[..., Any]:
    """Return the function of an operator, by name or alias, which names unnamed nodes.

    Raises UserError for an unknown or internal operator, naming the nearest.
    """
    if OPERATORS.get(name).is_internal:
        raise UserError(OPERATORS.unknown(name))
    return _function(name)


@once
def _function(operator: str) -> Callable[..., Any]:
    signature = cached_signature(OPERATORS.get(operator).type_string)

    def function(
        *symbols: Any,
        name: str | None = None,
        attr: Mapping[str, str] | None = None,
        **named: Any,
    ) -> Any:
        return Symbol(compose_entries(operator, symbols, named, name, normalised(attr or {})))

    function.__name__ = function.__qualname__ = operator
    function.__doc__ = signature.described()
    function.__signature__ = symbol_signature(signature)  # type: ignore[attr-defined]
    return function


def symbol_signature(signature: OperatorSignature) -> inspect.Signature:
    """Return the signature that editors and `help` show; every tensor may be missing."""
    either, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    if signature.is_variadic:
        parameters.append(inspect.Parameter("data", inspect.Parameter.VAR_POSITIONAL))
    parameters += [inspect.Parameter(each, either, default=None) for each in signature.tensor_names]
    for key, field in signature.fields.items():
        default = inspect.Parameter.empty if field.is_required() else field.get_default()
        parameters.append(inspect.Parameter(key, named, default=default))
    parameters += [inspect.Parameter(each, named, default=None) for each in ("name", "attr")]
    return inspect.Signature(parameters)
