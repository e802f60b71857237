"""Declaration of options: what a field of an options class says about itself.

A class of options is a frozen dataclass with keywords only. Each of its fields is annotated with
a Positional or an Option, from which the parameters of the command line, its help and the reference
derive.
"""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from typing import Any, get_args, get_origin, get_type_hints

from mxrun.base.dataclass import dataclass


@dataclass(frozen=True)
class Parameter:
    """Parameter of a command: the sentence that help shows, and a placeholder for its value.

    usual: describes the default where its value does not. parse: converts the text of the command
    line; it raises ValueError for other texts.
    """

    help: str
    metavar: str | None = None
    usual: str | None = None
    parse: Callable[[str], Any] | None = None


class Positional(Parameter):
    """Parameter that is given by its place on the command line."""


@dataclass(frozen=True)
class Option(Parameter):
    """Parameter that is given by name.

    flags: its names, by default `--` and that of the field. minimum, maximum: of a number.
    """

    flags: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class DeclaredField:
    """Field of a class of options.

    type: of its value. is_list: whether the parameter may be repeated. default: None if it is
    made for each command, and for lists.
    """

    name: str
    type: Any
    parameter: Parameter
    is_list: bool
    is_required: bool
    default: Any

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of an option on the command line; empty for an argument."""
        if not isinstance(self.parameter, Option):
            return ()
        return self.parameter.flags or (f"--{self.name.replace('_', '-')}",)


def declared_fields(options: type[Any]) -> Iterator[DeclaredField]:
    """Yield the fields of a class of options, in their order."""
    hints = get_type_hints(options, include_extras=True)
    for each in fields(options):
        yield _declared(each, hints[each.name])


def _declared(field: Field[Any], hint: Any) -> DeclaredField:
    annotation, parameter = get_args(hint)
    is_list = get_origin(annotation) is tuple
    has_default = field.default is not MISSING
    return DeclaredField(
        name=field.name,
        type=get_args(annotation)[0] if is_list else annotation,
        parameter=parameter,
        is_list=is_list,
        is_required=not has_default and field.default_factory is MISSING,
        default=field.default if has_default and not is_list else None,
    )
