"""Operator registry: properties by name, and the implementations of each, best first."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from mxrun.base.device import CPU, CUDA, DeviceDescription
from mxrun.base.errors import Diagnostic, InternalError, UserError
from mxrun.base.keywords import OPERATOR_NAME, is_operator_name
from mxrun.base.locks import new_lock
from mxrun.base.near_names import Suggestions, folded
from mxrun.base.params import Parameters, check, from_strings
from mxrun.base.registry import MODULE, Attributes, Registry, index
from mxrun.operator.foreign_names import elsewhere, missing
from mxrun.operator.kernel import BackwardRequest, ForwardRequest, Kernel
from mxrun.operator.property import OperatorProperty

AnyProperty = OperatorProperty[Any]
PropertyClass = TypeVar("PropertyClass", bound=type[AnyProperty])
ImplementationClass = TypeVar("ImplementationClass", bound="type[Implementation]")
# By YAML of a layer, with the rest of what replaces the other as the end of a sentence: names of
# other frameworks, in the form that `folded` returns, separated by spaces.
Foreign = Mapping[str, str]


class Implementation:
    """Implementation of an operator; `prepare_*` return None for unsupported requests.

    An implementation that prepares a forward kernel must also prepare the backward kernel of every
    request it accepts.

    devices: families of devices that its kernels run on. is_by_name: whether it is used only where
    a config names it, such as one that rounds.
    """

    name: str
    devices: frozenset[str]
    is_by_name: ClassVar[bool] = False

    def runs_on(self, device: DeviceDescription) -> bool:
        """Return whether its kernels run on a device."""
        return device.family in self.devices

    def prepare_forward(self, prop: AnyProperty, request: ForwardRequest) -> Kernel | None:
        """Prepare the kernel of a forward call, or return None."""
        raise NotImplementedError

    def prepare_backward(self, prop: AnyProperty, request: BackwardRequest) -> Kernel | None:
        """Prepare the kernel of a backward call, or return None."""
        raise NotImplementedError


class Operators(Registry[type[AnyProperty]]):
    """Registry of operators; internal operators are never suggested."""

    def unknown(self, name: str) -> Diagnostic:
        """Return the diagnostic for an unknown operator name."""
        return unknown_operator(name, Suggestions(most=1))


# Families of devices that run loops of the package's own compilers.
_GENERATED = {"jit": (CPU, CUDA)}
OPERATORS = Operators("operator")
_LISTED = "`mxrun ops` lists the operators"
_IMPLEMENTATIONS: Registry[Mapping[str, Implementation]] = Registry("implementations")
# By operator and backend, best first: the modules of the library's implementations and the families
# of their devices.
_DECLARED: Mapping[str, Mapping[str, Attributes]] = index().get("implementation", {})
_DEVICES = "devices"
# Threads may import several implementations of one operator.
_guard = new_lock()


def list_operators() -> list[str]:
    """Return the names of all operators, without internal ones and aliases, sorted."""
    return [name for name in OPERATORS if not OPERATORS.get(name).is_internal]


def unknown_operator(name: str, suggestions: Suggestions, others: Iterable[str] = ()) -> Diagnostic:
    """Return the diagnostic for an unknown operator name that may also mean one of `others`.

    Its hint is the counterpart of another framework's operator of that name, else the nearest
    names.
    """
    problem, form = f"unknown operator {name!r}", OPERATORS.foreign().get(folded(name))
    if form is not None:
        return Diagnostic(problem, hint=f"mxrun calls it {form}")
    if lacking := missing(name):
        return Diagnostic(problem, hint=f"mxrun has no {lacking} yet; {_LISTED}")
    if place := elsewhere(name):
        return Diagnostic(problem, hint=place)
    # MXNet has public operators whose names begin with _; they are suggested to those who know.
    public = [
        each
        for each in OPERATORS.names()
        if not OPERATORS.get(each).is_internal and each.startswith("_") <= name.startswith("_")
    ]
    return Diagnostic(problem, hint=suggestions.nearest(name, [*public, *others]) or _LISTED)


def register(
    name: str, *aliases: str, foreign: Foreign | None = None
) -> Callable[[PropertyClass], PropertyClass]:
    """Class decorator: register a property under `name` (its type string) and aliases.

    foreign: its names in other frameworks, which messages and `mxrun help` answer with it.

    Raises UserError for an incomplete property or an invalid name, InternalError if the name is
    taken or is not the property's type string.
    """

    def add(property_class: PropertyClass) -> PropertyClass:
        _require_property(property_class)
        for key in (name, *aliases):
            if not is_operator_name(key):
                called = property_class.__name__
                problem = f"{called} cannot be registered under that name"
                raise UserError(Diagnostic(problem, expected=OPERATOR_NAME, got=repr(key)))
        if property_class.type_string != name:
            raise InternalError(
                f"{property_class.__name__} is registered as {name!r}, but its type string is "
                f"{property_class.type_string!r}; they must be equal"
            )
        OPERATORS.add(name, property_class, *aliases, foreign=foreign)
        return property_class

    return add


def _require_property(candidate: object) -> None:
    """Raise UserError if `candidate` is not a complete OperatorProperty class."""
    name = getattr(candidate, "__name__", repr(candidate))
    if not (isinstance(candidate, type) and issubclass(candidate, OperatorProperty)):
        hint = "register a function with mxrun.operator.simple.simple_operator"
        raise UserError(
            Diagnostic(f"{name} is not an OperatorProperty", expected="a subclass of it", hint=hint)
        )
    lacking = sorted(candidate.__abstractmethods__)
    if not isinstance(getattr(candidate, "type_string", None), str):
        lacking.append("type_string")
    parameter_type = getattr(candidate, "parameter_type", None)
    if not (isinstance(parameter_type, type) and issubclass(parameter_type, Parameters)):
        lacking.append("parameter_type (a class of Parameters)")
    if lacking:
        hint = "`mxrun.operator.property` documents each of them"
        raise UserError(Diagnostic(f"{name} lacks {', '.join(lacking)}", hint=hint))


def implement(
    *names: str, backend: str, devices: Iterable[str] | None = None, before: str = ""
) -> Callable[[ImplementationClass], ImplementationClass]:
    """Class decorator: add an implementation of the named operators, preferred in order of
    definition.

    backend: its name. devices: families of devices that its kernels run on; by default the CPU, and
    cards too for generated loops, whose backend is `jit`. before: name of an
    implementation that this one is preferred to, even if that is already defined.

    Raises InternalError if an operator already has an implementation of that name.
    """

    def add(implementation_class: ImplementationClass) -> ImplementationClass:
        for name in names:
            declared = _DECLARED.get(name, {})
            if declared.get(backend, {}).get(MODULE) not in sys.modules:
                # It is not the library's own, all of which are defined before.
                implementations(name)
            with _guard:
                table = _table(name)
                if backend in table:
                    raise InternalError(f"{name} has two implementations named {backend!r}")
                implementation = implementation_class()
                families = _GENERATED.get(backend, (CPU,)) if devices is None else devices
                implementation.name, implementation.devices = backend, frozenset(families)
                defined = list(table.items())
                place = [*table].index(before) if before in table else len(defined)
                defined.insert(place, (backend, implementation))
                if backend in declared:
                    # In whatever order the modules are imported.
                    defined.sort(key=lambda each: [*declared].index(each[0]))
                _IMPLEMENTATIONS.put(name, dict(defined))
        return implementation_class

    return add


def implementations(
    name: str, device: DeviceDescription | None = None
) -> Mapping[str, Implementation]:
    """Registered implementations of an operator, best first; the NumPy body is not listed.

    device: only those that run on this device; modules of others are not imported.
    """
    for each in _DECLARED.get(name, {}).values():
        if device is None or device.family in each[_DEVICES]:
            importlib.import_module(each[MODULE])
    known = _table(name)
    return {key: each for key, each in known.items() if device is None or each.runs_on(device)}


def _table(name: str) -> Mapping[str, Implementation]:
    """Return the implementations of an operator whose modules are imported, best first."""
    return _IMPLEMENTATIONS.get(name) if name in _IMPLEMENTATIONS else {}


def create(name: str, parameters: Mapping[str, object]) -> AnyProperty:
    """Create the property `name` with typed parameters; raises UserError listing every problem."""
    property_class = OPERATORS.get(name)
    return _property(property_class, *check(property_class.parameter_type, parameters))


def create_from_strings(name: str, strings: Mapping[str, str]) -> AnyProperty:
    """Create the property `name` with MXNet's string parameters; raises UserError."""
    property_class = OPERATORS.get(name)
    return _property(property_class, *from_strings(property_class.parameter_type, strings))


def _property(
    property_class: type[AnyProperty],
    parameters: Parameters | None,
    problems: Iterable[Diagnostic],
) -> AnyProperty:
    if parameters is None:
        name = property_class.type_string
        raise UserError(replace(each, problem=f"{name}: {each.problem}") for each in problems)
    return property_class(parameters)
