"""Functions of operators on arrays, generated from the registry.

`operator_function(NAME)` returns the function of any registered operator, of a plugin's too:

    function(*tensors, *parameters, out=None, name=None, **tensors_or_parameters)

Tensors come first, in the operator's order, or by name; parameters follow by name, or by position
where MXNet has the same order. It returns the visible output, or a list of several.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.base.once import once
from mxrun.imperative.arrays.array import NDArrayBase
from mxrun.imperative.calls.invoke import invoke
from mxrun.operator.register import OPERATORS, AnyProperty, create
from mxrun.operator.signature import COUNT, OperatorSignature, signature_of

# Cached properties of an operator, which have other parameters: a scalar may differ at every call.
_MAX_KNOWN = 4096

Tensors = list[Any]
Bound = tuple[AnyProperty, Tensors]


class CallBinder:
    """Translation of a call's arguments to a property and its inputs.

    Properties are cached by their parameters, so that the same call finds the same property.
    """

    def __init__(self, signature: OperatorSignature) -> None:
        self.signature = signature
        self._names = signature.tensor_names
        self._known: dict[Any, AnyProperty] = {}

    def bind(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Bound:
        """Return the property and the inputs. Raises UserError for arguments that do not fit."""
        for each in arguments:
            if not isinstance(each, NDArrayBase):
                return self._bind_any(arguments, keywords)
        for each in keywords.values():
            if isinstance(each, (NDArrayBase, list, np.ndarray)):
                return self._bind_any(arguments, keywords)
        found = self._known.get((len(arguments), *map(_key_of, keywords, keywords.values())))
        if found is None:
            return self._bind_any(arguments, keywords)
        return found, list(arguments)

    def _bind_any(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Bound:
        """Bind a call in any form, and remember its property if only parameters have names."""
        if self.signature.is_variadic:
            return self._bind_variadic(arguments, keywords)
        leading = self._leading(arguments)
        positional = dict(zip(self._names, arguments[:leading], strict=False))
        parameters = dict(self._positioned(arguments[leading:], leading))
        named: dict[str, Any] = {}
        for name, value in keywords.items():
            if name in positional or name in parameters:
                raise self._error(f"{name!r} is given twice")
            (named if name in self._names else parameters)[name] = value
        prop = self._property(parameters)
        names = (*prop.list_arguments(), *prop.list_auxiliary_states())
        is_complete = all(each is not None for each in positional.values())
        if is_complete and len(positional) <= len(names):
            # The inputs that these parameters have, in order.
            positional = dict(zip(names, positional.values(), strict=False))
        given = {name: each for name, each in (positional | named).items() if each is not None}
        return prop, self._ordered(names, given)

    def _bind_variadic(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Bound:
        tensors = list(arguments)
        for position, value in enumerate(tensors):
            self._require_array(value, f"argument {position}")
        if not tensors:
            raise self._error("no inputs", expected="one array or more")
        count = keywords.get(COUNT, len(tensors))
        if count != len(tensors):
            raise self._error(f"{COUNT} is not the number of inputs", str(len(tensors)), str(count))
        return self._property({COUNT: count, **keywords}, len(tensors)), tensors

    def _leading(self, arguments: Sequence[Any]) -> int:
        """Return the number of leading arguments that are tensors, or None for an absent one."""
        count = 0
        for tensor, value in zip(self.signature.tensors, arguments, strict=False):
            if not (isinstance(value, NDArrayBase) or (value is None and tensor.is_optional)):
                break
            count += 1
        return count

    def _positioned(self, values: Sequence[Any], leading: int) -> Iterator[tuple[str, Any]]:
        """Yield the parameters among the positional arguments, by name."""
        if not values:
            return
        if leading < len(self._names):
            name = self._names[leading]
            if not self.signature.tensors[leading].is_optional:
                self._require_array(values[0], repr(name))
        if not self.signature.positional or any(isinstance(each, NDArrayBase) for each in values):
            expected = ", ".join(self._names) or "arrays"
            hint = "give parameters by name" if self.signature.fields else ""
            raise self._error("too many positional arguments", expected, _listed(values), hint=hint)
        names = list(self.signature.fields)
        if len(values) > len(names):
            expected = ", ".join((*self._names, *names))
            raise self._error("too many positional arguments", expected, _listed(values))
        yield from zip(names, values, strict=False)

    def _property(self, parameters: Mapping[str, Any], count: int | None = None) -> AnyProperty:
        """Return the property with these parameters, and cache it for calls in the same form."""
        given = {name: plain_value(name, value) for name, value in parameters.items()}
        self._reject_unknown(given)
        prop = create(self.signature.name, given)
        needed = len(prop.list_arguments()) + len(prop.list_auxiliary_states())
        forms = [given, {name: value for name, value in given.items() if name != COUNT}]
        if len(self._known) > _MAX_KNOWN:
            self._known.clear()
        for form in forms:
            key = (count or needed, *map(_key_of, form, form.values()))
            prop = self._known.setdefault(key, prop)
        return prop

    def _reject_unknown(self, given: Mapping[str, Any]) -> None:
        """Raise UserError for names that are neither tensors nor parameters."""
        known = [*self._names, *self.signature.fields, COUNT]
        for name in given:
            if name not in known:
                listed = ", ".join([*self._names, *self.signature.fields, "out"])
                hint = nearest(name, [*known, "out"]) or f"known: {listed}"
                raise self._error(f"unknown parameter {name!r}", hint=hint)

    def _ordered(self, names: Sequence[str], named: Mapping[str, Any]) -> Tensors:
        """Return the tensors in the property's order."""
        for name, value in named.items():
            self._require_array(value, repr(name))
        lacking = [name for name in names if name not in named]
        unused = [name for name in named if name not in names]
        if lacking or unused:
            problem = (
                f"the input {lacking[0]!r} is missing"
                if lacking
                else f"there is no input {unused[0]!r} with these parameters"
            )
            raise self._error(problem, ", ".join(names), ", ".join(named) or "none")
        return [named[name] for name in names]

    def _require_array(self, value: Any, what: str) -> None:
        if not isinstance(value, NDArrayBase):
            hint = "mxrun.nd.array(VALUES) makes one"
            raise self._error(f"{what} is not an array", "NDArray", type(value).__name__, hint=hint)

    def _error(self, problem: str, expected: str = "", got: str = "", hint: str = "") -> UserError:
        whose = f"{self.signature.name}: {problem}"
        return UserError(Diagnostic(whose, expected=expected, got=got, hint=hint))


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(type(value).__name__ for value in values)


def _key_of(name: str, value: Any) -> tuple[str, type, Any]:
    """Return a parameter as a key: equal numbers of other types differ, as do 0.0 and -0.0."""
    return name, value.__class__, value if value else repr(value)


def plain_value(name: str, value: Any) -> Any:
    """Return a parameter without NumPy's types: scalars as numbers, lists as tuples, dtypes as
    names.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return tuple(plain_value(name, item) for item in value)
    if name == "dtype" and isinstance(value, (type, np.dtype)):
        return np.dtype(value).name
    return value


def operator_function(name: str) -> Callable[..., Any]:
    """Return the function of an operator, by name or alias.

    Raises UserError for an unknown or internal operator, naming the nearest.
    """
    kind = OPERATORS.get(name)
    if kind.is_internal:
        raise UserError(OPERATORS.unknown(name))
    return _function(kind)


@once
def _function(kind: type[AnyProperty]) -> Callable[..., Any]:
    binder = CallBinder(signature_of(kind.type_string))
    bind = binder.bind

    def function(*arguments: Any, out: Any = None, name: Any = None, **keywords: Any) -> Any:
        prop, tensors = bind(arguments, keywords)
        return call(prop, tensors, out)

    function.__name__ = function.__qualname__ = kind.type_string
    function.__module__ = "mxrun.nd"
    function.__doc__ = binder.signature.described()
    function.__signature__ = python_signature(binder.signature)  # type: ignore[attr-defined]
    return function


def call(prop: AnyProperty, tensors: Sequence[Any], out: Any = None) -> Any:
    """Invoke an operator; return its visible output, or a list of several.

    out: array, or list of arrays, for the visible outputs, which is returned then.
    """
    if out is not None:
        invoke(prop, tensors, out if isinstance(out, (list, tuple)) else [out])
        return out
    results = invoke(prop, tensors)
    return results[0] if len(results) == 1 else list(results)


def python_signature(signature: OperatorSignature) -> inspect.Signature:
    """Return the signature that editors and `help` show."""
    positional, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    if signature.is_variadic:
        parameters.append(inspect.Parameter("data", inspect.Parameter.VAR_POSITIONAL))
    for tensor in signature.tensors:
        default = None if tensor.is_optional else inspect.Parameter.empty
        parameters.append(inspect.Parameter(tensor.name, positional, default=default))
    kind = positional if signature.positional else named
    for name, field in signature.fields.items():
        default = inspect.Parameter.empty if field.is_required() else field.get_default()
        if default is inspect.Parameter.empty and has_default(parameters):
            kind = named
        parameters.append(inspect.Parameter(name, kind, default=default))
    for name in ("out", "name"):
        parameters.append(inspect.Parameter(name, named, default=None))
    return inspect.Signature(parameters)


def has_default(parameters: Sequence[inspect.Parameter]) -> bool:
    """Return whether a parameter before has a default, which all behind it must have then."""
    return any(each.default is not inspect.Parameter.empty for each in parameters)


def public_names() -> list[str]:
    """Return the names and aliases of all operators that have a function."""
    return sorted(name for name in OPERATORS.names() if not OPERATORS.get(name).is_internal)
