"""Instantiation of registered models from a config's `{kind: {parameter: value}}`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import check
from mxrun.base.registry import Registry
from mxrun.config import Choice


def instantiate(choice: Choice, registry: Registry[Any], problems: list[Diagnostic]) -> Any:
    """Return the registered model that `choice` names, with its parameters.

    If it is unknown, the result is None; diagnostics are appended to `problems`.
    """
    try:
        model = registry.get(choice.kind)
    except UserError as error:
        problems += (replace(found, place=choice.place) for found in error.diagnostics)
        return None
    values = {key: marked.plain() for key, marked in choice.parameters.items()}
    instance, wrong = check(model, values)
    for problem in wrong:
        place = choice.place
        if problem.path and problem.path[0] in choice.parameters:
            marked = choice.parameters[str(problem.path[0])]
            place = marked.find(*problem.path[1:]).place
        problems.append(
            Diagnostic(
                f"{choice.kind}: {problem.problem}",
                place,
                problem.expected,
                problem.got,
                problem.hint,
            )
        )
    return instance
