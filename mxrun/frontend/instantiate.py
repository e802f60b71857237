"""Instantiation of registered models from a config's `{kind: {parameter: value}}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mxrun.base.errors import Diagnostics, SourceLocation, UserError
from mxrun.base.params import Locate, check
from mxrun.base.registry import Registry
from mxrun.config import Choice, SourceNode


def instantiate(choice: Choice, registry: Registry[Any], diagnostics: Diagnostics) -> Any:
    """Return the registered model that `choice` names, with its parameters.

    If it is unknown, the result is None; problems are added to `diagnostics`.
    """
    try:
        model = registry.get(choice.kind)
    except UserError as error:
        diagnostics += (replace(found, place=choice.place) for found in error.diagnostics)
        return None
    values = {key: marked.plain() for key, marked in choice.parameters.items()}
    instance, wrong = check(model, values, location_in(choice.parameters, choice.place))
    diagnostics += (replace(found, problem=f"{choice.kind}: {found.problem}") for found in wrong)
    return instance


def location_in(parameters: Mapping[str, SourceNode], default: SourceLocation) -> Locate:
    """Return a function from a path within parameters to its place; by default `default`."""

    def locate(path: tuple[str | int, ...]) -> SourceLocation:
        if not path or path[0] not in parameters:
            return default
        return parameters[str(path[0])].find(*path[1:]).place

    return locate
