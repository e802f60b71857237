"""Groups of a run's variables: loaded, frozen, trainable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mxrun.frontend import ModelDefinition
from mxrun.train.checkpoint import StartedFrom
from mxrun.train.observer import VariableGroup, WarmStart


def variable_groups(
    built: ModelDefinition, started_from: StartedFrom | None
) -> tuple[VariableGroup, ...]:
    """Return the parameters and auxiliary states in groups, without empty ones.

    trainable: changed by gradients. statistics: states that training updates. frozen: all others.
    With `started_from` (`WarmStartSource.record`) also loaded and initialised, which together are
    all variables; frozen_unloaded, frozen variables and statistics that retain an initial value;
    and left_out, tensors of the other run that are not loaded, of unknown size.
    """
    model = built.model
    moving = model.moving_states
    trainable = [name for name in model.learned if name in built.training.rules]
    frozen = [n for n in model.learned if n not in built.training.rules and n not in moving]
    groups: dict[str, Sequence[str]] = {}
    if started_from is not None:
        loaded = {*started_from.loaded}
        initialised = [name for name in model.learned if name not in loaded]
        groups["loaded"] = [name for name in model.learned if name in loaded]
        groups["initialised"] = initialised
        groups["frozen_unloaded"] = [
            name
            for name in initialised
            if name in frozen and (model.variables[name].frozen or name not in model.parameters)
        ]
        groups["left_out"] = started_from.unexpected
    groups |= {"frozen": frozen, "trainable": trainable, "statistics": sorted(moving)}
    return tuple(_group(built, kind, names) for kind, names in groups.items() if names)


def trainable_elements(built: ModelDefinition) -> int | None:
    """Return the number of trainable elements; None if the config freezes no variable."""
    if not any(variable.frozen for variable in built.model.variables.values()):
        return None
    return sum(built.model.learned[name].elements for name in built.training.rules)


def warm_start(built: ModelDefinition, started_from: StartedFrom | None) -> WarmStart | None:
    """Return the report of a warm start (`WarmStartSource.record`), or None without one."""
    if started_from is None:
        return None
    groups = variable_groups(built, started_from)
    return WarmStart(started_from.run, groups, started_from.misshapen)


def groups_json(groups: Sequence[VariableGroup]) -> dict[str, Any]:
    """Return the groups as JSON, by kind."""
    return {group.kind: group.to_json() for group in groups}


def _group(built: ModelDefinition, kind: str, names: Sequence[str]) -> VariableGroup:
    if kind == "left_out":
        return VariableGroup(kind, tuple(names))
    specs = [built.model.learned[name] for name in names]
    elements = sum(spec.elements for spec in specs)
    return VariableGroup(kind, tuple(names), elements, sum(spec.nbytes for spec in specs))
