"""Frozen moving statistics: layers that read them in training as in inference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mxrun.base.errors import Diagnostic, Diagnostics
from mxrun.config import VariableSection
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.symbol import Symbol
from mxrun.operator.property import GradientKind
from mxrun.operator.register import AnyProperty


def with_frozen_states(
    symbol: Symbol, settings: Mapping[str, VariableSection], diagnostics: Diagnostics
) -> Symbol:
    """Replace each operator whose auxiliary states are frozen by a variant that updates none.

    settings: those of every parameter and state by name. States are frozen if their own setting
    says so or, without a setting, if every parameter of the layer is frozen. Returns `symbol`
    itself if nothing is frozen. Diagnostics for states that cannot be frozen are added to
    `diagnostics`.
    """
    frozen: dict[Node, AnyProperty] = {}
    for node in symbol.nodes:
        if node.prop is None or not node.prop.list_state_updates():
            continue
        prop = _frozen(node, node.prop, settings, diagnostics)
        if prop is not None:
            frozen[node] = prop
    return _replaced(symbol, frozen) if frozen else symbol


def _frozen(
    node: Node,
    prop: AnyProperty,
    settings: Mapping[str, VariableSection],
    diagnostics: Diagnostics,
) -> AnyProperty | None:
    """Return the operator with frozen states; None if they are not frozen."""
    states = [entry.name for entry in node.inputs[len(node.argument_entries()) :]]
    own = {name: settings[name].frozen for name in states if name in settings}
    given = {name: frozen for name, frozen in own.items() if frozen is not None}
    if len(set(given.values())) > 1:
        diagnostics.add(
            Diagnostic(
                f"{node.operator} {node.name!r}: some of its moving statistics are frozen, others "
                "not",
                place=node.place,
                expected="all of them frozen, or none",
                got=", ".join(f"{name}: {str(value).lower()}" for name, value in given.items()),
                hint="give network.variables one pattern for all of them",
            )
        )
        return None
    if not (any(given.values()) if given else _is_left_alone(node, prop, settings)):
        return None
    form = prop.with_frozen_states()
    if form is None and given:
        diagnostics.add(
            Diagnostic(
                f"{node.operator} {node.name!r} cannot be frozen: it updates its states in "
                "training",
                place=node.place,
                got=", ".join(given),
                hint=f"network.variables: {{{states[0]}: {{frozen: false}}}}",
            )
        )
    return form


def _is_left_alone(node: Node, prop: AnyProperty, settings: Mapping[str, VariableSection]) -> bool:
    """Return whether the layer has trainable parameters and all of them are frozen."""
    kinds = prop.list_gradients()
    names = [
        entry.name
        for entry, kind in zip(node.argument_entries(), kinds, strict=True)
        if kind is not GradientKind.ZERO and entry.name in settings
    ]
    return bool(names) and all(settings[name].frozen for name in names)


def _replaced(symbol: Symbol, properties: Mapping[Node, AnyProperty]) -> Symbol:
    """Return the network with the properties of some nodes replaced."""
    made: dict[Node, Node] = {}

    def entry(old: NodeEntry) -> NodeEntry:
        return NodeEntry(made[old.node], old.index)

    for node in symbol.nodes:
        inputs = tuple(map(entry, node.inputs))
        changed = node in properties or inputs != node.inputs
        prop = properties.get(node, node.prop)
        made[node] = replace(node, prop=prop, inputs=inputs) if changed else node
    return Symbol(map(entry, symbol.heads))
