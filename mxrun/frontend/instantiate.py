"""Instantiation of registered models from a config's `{kind: {parameter: value}}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostics, SourceLocation, UserError
from mxrun.base.params import check
from mxrun.base.registry import Registry
from mxrun.base.validation import Path
from mxrun.config import Choice, SourceNode
from mxrun.config.translate import key_elsewhere


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
    instance, wrong = check(model, values, ParameterPlaces(choice.parameters, choice.place))
    diagnostics += (replace(found, problem=f"{choice.kind}: {found.problem}") for found in wrong)
    return instance


@dataclass(frozen=True)
class ParameterPlaces:
    """Places of parameters in a config; `default` is that of a parameter that is not given."""

    parameters: Mapping[str, SourceNode]
    default: SourceLocation

    def place(self, path: Path) -> SourceLocation:
        """Return the place of the value at `path`, or of its nearest existing parent."""
        found = self._find(path)
        return self.default if found is None else found.place

    def key_place(self, path: Path) -> SourceLocation:
        """Return the place of the key at `path`, or of its nearest existing parent."""
        found = self._find(path)
        return self.default if found is None else found.start

    def elsewhere(self, key: str) -> str:
        """Return where a config has the unknown `key`, or what does the same; else empty."""
        return key_elsewhere(key)

    def _find(self, path: Path) -> SourceNode | None:
        if not path or path[0] not in self.parameters:
            return None
        return self.parameters[str(path[0])].find(*path[1:])
