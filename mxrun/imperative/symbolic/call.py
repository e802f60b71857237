"""Binding of a call's arguments to an operator: inputs and parameters, by position or by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.base.once import once
from mxrun.graph.attributes import in_scope, is_hidden
from mxrun.graph.node import NodeEntry
from mxrun.graph.symbol import Symbol, apply_entries
from mxrun.imperative.calls.functions import plain_value
from mxrun.operator.register import OPERATORS
from mxrun.operator.signature import COUNT, OperatorSignature, signature_of


def compose_entries(
    operator: str,
    symbols: Sequence[Any],
    named: Mapping[str, Any],
    name: str | None = None,
    attributes: Mapping[str, str] | None = None,
) -> tuple[NodeEntry, ...]:
    """Return the visible outputs of an operator applied to symbols; un-applied without any.

    symbols: inputs by position, then parameters by position. named: inputs and parameters by name.
    Raises UserError for arguments that the operator does not have.
    """
    signature = cached_signature(OPERATORS.get(operator).type_string)
    given = {key: value for key, value in named.items() if not is_hidden(key)}
    hidden = {key: str(value) for key, value in named.items() if is_hidden(key)}
    inputs, parameters = _bound(signature, symbols, given)
    own = in_scope({**(attributes or {}), **hidden})
    wrong = [key for key in own if not is_hidden(key)]
    if wrong:
        raise UserError(
            Diagnostic(
                f"{operator} cannot have the attribute {key!r}",
                expected="a name with two underscores on each side",
                hint=f"__{key}__",
            )
            for key in wrong
        )
    return apply_entries(operator, inputs, parameters, name, own)


@once
def cached_signature(name: str) -> OperatorSignature:
    """Return the signature of an operator, by its registered name."""
    return signature_of(name)


def _bound(
    signature: OperatorSignature, positional: Sequence[Any], named: Mapping[str, Any]
) -> tuple[dict[str, Symbol], dict[str, Any]]:
    """Return the inputs and the parameters of a call."""
    names = signature.tensor_names
    inputs: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    if signature.is_variadic:
        inputs = {f"arg{index}": symbol for index, symbol in enumerate(positional)}
        if inputs:
            parameters[COUNT] = len(inputs)
    else:
        leading = _leading(signature, positional)
        inputs = dict(zip(names, positional[:leading], strict=False))
        parameters = dict(_positioned(signature, positional[leading:]))
    for key, value in named.items():
        if (key in inputs and inputs[key] is not None) or (key in parameters and key != COUNT):
            raise _error(signature, f"{key!r} is given twice")
        is_input = key in names or isinstance(value, Symbol)
        (inputs if is_input else parameters)[key] = value
    found = {key: value for key, value in inputs.items() if value is not None}
    for key, value in found.items():
        if not isinstance(value, Symbol):
            problem = f"the input {key!r} is no symbol"
            raise _error(signature, problem, "a symbol", type(value).__name__)
    _reject_unknown(signature, parameters)
    return found, {key: plain_value(key, value) for key, value in parameters.items()}


def _leading(signature: OperatorSignature, positional: Sequence[Any]) -> int:
    """Return the number of leading arguments that are symbols, or None for an absent one."""
    count = 0
    for value in positional[: len(signature.tensors)]:
        if not isinstance(value, Symbol) and value is not None:
            break
        count += 1
    return count


def _positioned(signature: OperatorSignature, values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the parameters among the positional arguments, by name."""
    fields = list(signature.fields)
    if not values:
        return
    is_symbol = any(isinstance(value, Symbol) for value in values)
    if is_symbol or not signature.positional or len(values) > len(fields):
        listed = ", ".join(type(value).__name__ for value in values)
        expected = ", ".join(signature.tensor_names)
        hint = "give parameters by name" if fields else ""
        raise _error(signature, "too many positional arguments", expected, listed, hint=hint)
    yield from zip(fields, values, strict=False)


def _reject_unknown(signature: OperatorSignature, parameters: Mapping[str, Any]) -> None:
    known = [*signature.tensor_names, *signature.fields]
    for key in parameters:
        if key not in known and key != COUNT:
            hint = nearest(key, known) or f"known: {', '.join(known)}"
            raise _error(signature, f"unknown parameter {key!r}", hint=hint)


def _error(
    signature: OperatorSignature, problem: str, expected: str = "", got: str = "", hint: str = ""
) -> UserError:
    text = f"{signature.name}: {problem}"
    return UserError(Diagnostic(text, expected=expected, got=got, hint=hint))
