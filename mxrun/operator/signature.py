"""Signatures of operators as functions: which tensors and which parameters a call may have.

The inputs of an operator depend on its parameters. A signature lists those of all parameters: the
ones that some parameters leave out are optional.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic.fields import FieldInfo

from mxrun.base.dataclass import dataclass
from mxrun.base.description import describe_field
from mxrun.base.docstrings import docstring
from mxrun.base.errors import UserError
from mxrun.operator.register import OPERATORS, AnyProperty, create
from mxrun.operator.shape import ShapeContradiction

COUNT = "num_args"
"""MXNet's parameter for the number of inputs of an operator that takes any number."""


@dataclass(frozen=True)
class TensorArgument:
    """Input or auxiliary state of an operator; optional if some parameters leave it out."""

    name: str
    is_optional: bool = False


@dataclass(frozen=True, eq=False)
class OperatorSignature:
    """Arguments of an operator's function.

    tensors: inputs, then auxiliary states, in the operator's order; empty if it is variadic.
    is_variadic: whether it takes any number of inputs, which `num_args` counts. outputs: number of
    visible outputs; 0 if it depends on the parameters. fields: the parameters, without the counted
    one. positional: whether parameters may follow the tensors by position, in their order.
    """

    name: str
    tensors: tuple[TensorArgument, ...]
    is_variadic: bool
    outputs: int
    fields: Mapping[str, FieldInfo]
    positional: bool
    document: str

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of the inputs and auxiliary states."""
        return tuple(tensor.name for tensor in self.tensors)

    def described(self) -> str:
        """Return the docstring of the function: what it computes, tensors and parameters."""
        parts = [self.document]
        if self.is_variadic:
            parts.append("*data: the inputs, any number of them.")
        elif optional := [each.name for each in self.tensors if each.is_optional]:
            parts.append(f"Inputs that depend on the parameters: {', '.join(optional)}.")
        rows = [_described(name, field) for name, field in self.fields.items()]
        if rows:
            parts.append("\n".join(["Parameters:", *rows]))
        return "\n\n".join(parts)


# Operators whose parameters MXNet has in another order; likewise every update.
_NAMED_ONLY = frozenset({"Convolution", "Deconvolution", "LRN", "norm"})


def signature_of(name: str) -> OperatorSignature:
    """Return the signature of an operator, by name or alias; UserError for an unknown name."""
    kind = OPERATORS.get(name)
    fields = dict(kind.parameter_type.model_fields)
    is_variadic = fields.pop(COUNT, None) is not None
    variants = list(_variants(kind))
    counts = {prop.num_visible_outputs for prop in variants}
    tensors = () if is_variadic else _tensors(variants)
    named_only = (
        is_variadic
        or any(tensor.is_optional for tensor in tensors)
        or any(prop.list_mutated_inputs() for prop in variants)
        or kind.type_string in _NAMED_ONLY
    )
    return OperatorSignature(
        kind.type_string,
        tensors,
        is_variadic,
        counts.pop() if len(counts) == 1 else 0,
        fields,
        not named_only,
        docstring(kind),
    )


def _tensors(variants: Sequence[AnyProperty]) -> tuple[TensorArgument, ...]:
    """Merge the inputs and states of all variants, each group in the operator's order."""
    groups = [
        [prop.list_arguments() for prop in variants],
        [prop.list_auxiliary_states() for prop in variants],
    ]
    return tuple(
        TensorArgument(name, not all(name in names for names in listed))
        for listed in groups
        for name in _merged(listed)
    )


def _merged(listed: Sequence[tuple[str, ...]]) -> list[str]:
    """Return every name once; a name stands behind those before it in its own list."""
    merged: list[str] = []
    for names in sorted(listed, key=len, reverse=True):
        place = 0
        for name in names:
            if name not in merged:
                merged.insert(place, name)
            place = merged.index(name) + 1
    return merged


def _variants(kind: type[AnyProperty]) -> Iterator[AnyProperty]:
    """Yield the operator with example parameters, then with each flag and each choice changed."""
    fields = kind.parameter_type.model_fields
    example = {name: field.examples[0] for name, field in fields.items() if field.examples}
    required = {name: value for name, value in example.items() if fields[name].is_required()}
    flags = [name for name, field in fields.items() if field.annotation is bool]
    changes: list[dict[str, object]] = [{}, example]
    changes += [dict.fromkeys(flags, value) for value in (True, False)]
    changes += [{name: value} for name, field in fields.items() for value in _choices(field)]
    found = []
    for change in changes:
        try:
            prop = create(kind.type_string, {**required, **change})
            prop.list_arguments()
        except (UserError, ShapeContradiction):
            # Not every combination is valid.
            continue
        found.append(prop)
    # The number of outputs may be a parameter without choices.
    for name, value in required.items():
        if isinstance(value, int) and not isinstance(value, bool):
            found.append(create(kind.type_string, {**required, name: value + 1}))
    yield from found


def _choices(field: FieldInfo) -> tuple[Any, ...]:
    if field.annotation is bool:
        return (not field.default,)
    if typing.get_origin(field.annotation) is typing.Literal:
        return typing.get_args(field.annotation)
    return ()


def _described(name: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else f"default {field.get_default()!r}"
    return f"    {name}: {describe_field(field)}, {default}. {field.description or ''}".rstrip()
