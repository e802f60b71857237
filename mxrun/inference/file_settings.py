"""Settings of inference that change how files are read: `KEY=VALUE` on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.params import Parameters, check
from mxrun.config import COMMAND_LINE, Overrides, SourceNode, overridden
from mxrun.frontend.instantiate import ParameterPlaces

P = TypeVar("P", bound=Parameters)

PATH = "path"
# Keys of a data section that say which records are read, not how.
_CHOICES = (PATH, "dataset", "split")
_START = SourceLocation(COMMAND_LINE, 1, 1)


def given_settings(settings: Overrides) -> Mapping[str, SourceNode]:
    """Return the values of `KEY=VALUE`. Raises UserError for others, and for a path."""
    diagnostics = Diagnostics()
    found = overridden(SourceNode({}, _START), settings, diagnostics).value
    assert isinstance(found, Mapping)
    diagnostics += (
        Diagnostic(
            f"{key}= is no setting of files",
            found[key].start,
            hint="name files behind the run, or use --split and KEY=VALUE for a data set",
        )
        for key in _CHOICES
        if key in found
    )
    if diagnostics:
        raise UserError(diagnostics)
    return found


def with_settings(options: P, given: Mapping[str, SourceNode]) -> P:
    """Return the options of a data set with other values. Raises UserError for wrong ones."""
    plain = {key: node.plain() for key, node in given.items()}
    values = {**options.model_dump(exclude_unset=True), **plain}
    changed, problems = check(type(options), values, ParameterPlaces(given, _START))
    if changed is None:
        raise UserError(problems)
    return changed
