"""Parameters of commands for Typer, derived from the classes of their options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from mxrun.options.declaration import DeclaredField, Option, Parameter, declared_fields

# A union with a Literal is of the older kind.
_UNIONS = (UnionType, Union)

OPTIONS = "options"
"""Name of the parameter that takes a command's options."""


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """Return `function`, whose parameter `options` is of a class of options, for Typer.

    The fields of the class are the parameters. Those of `function` besides are Typer's own.
    """
    hints = get_type_hints(function)
    if OPTIONS not in hints:
        return function
    fields = list(declared_fields(hints[OPTIONS]))
    own = [
        each.replace(annotation=hints[each.name])
        for each in inspect.signature(function).parameters.values()
        if each.name != OPTIONS
    ]

    def command(**values: Any) -> None:
        given = {
            each.name: value
            for each in fields
            if (value := _value(values.pop(each.name))) is not None
        }
        function(**values, options=hints[OPTIONS](**given))

    signature = inspect.Signature([*own, *map(_parameter, fields)])
    functools.update_wrapper(command, function)
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return command


def _value(given: Any) -> Any:
    """Return a value of Typer as that of a field."""
    if isinstance(given, Enum):
        return given.value
    return tuple(given) if isinstance(given, list) else given


def _parameter(field: DeclaredField) -> inspect.Parameter:
    """Return a field as the parameter of a function."""
    type_, default = _typer_type(field), field.default
    if isinstance(default, str) and isinstance(type_, type) and issubclass(type_, Enum):
        default = type_(default)
    # Without a default, a list or a value is optional if it may be None.
    is_optional = default is None and not field.is_required
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if field.is_required else default,
        annotation=Annotated[type_ | None if is_optional else type_, _information(field)],
    )


def _typer_type(field: DeclaredField) -> Any:
    """Return the type of a value: without None, and an Enum instead of a Literal."""
    type_: Any = str
    if field.parameter.parse is None:
        kinds = get_args(field.type) if get_origin(field.type) in _UNIONS else (field.type,)
        (type_,) = (each for each in kinds if each is not NoneType)
    if get_origin(type_) is Literal:
        type_ = _choice(field.name, get_args(type_))
    return list[type_] if field.is_list else type_


def _choice(name: str, values: Sequence[str]) -> Any:
    """Return an Enum of values, which Typer takes for choices."""
    members: Any = {value: value for value in values}
    return Enum(name, members, type=str)


def _information(field: DeclaredField) -> Any:
    """Return Typer's description of a parameter."""
    parameter = field.parameter
    parse = None if parameter.parse is None else _parser(parameter)
    usual = True if parameter.usual is None else parameter.usual
    about: dict[str, Any] = {"help": parameter.help, "metavar": parameter.metavar, "parser": parse}
    about["show_default"] = usual
    if not isinstance(parameter, Option):
        return typer.Argument(**about)
    return typer.Option(*field.flags, min=parameter.minimum, max=parameter.maximum, **about)


def _parser(parameter: Parameter) -> Callable[[str], Any]:
    """Return the function that parses a text for Typer."""

    def parse(text: str) -> Any:
        assert parameter.parse is not None
        try:
            return parameter.parse(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return parse
