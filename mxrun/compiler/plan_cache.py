"""Plans of executors that this process has made, for symbols that are bound again.

A plan is frozen and knows no memory, so that any number of executors can share it. Networks that
are written again, reshaped back and forth or rebuilt for another bucket bind several times faster.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from mxrun.base import flags
from mxrun.base.locks import new_lock
from mxrun.base.once import cached_property
from mxrun.compiler.bound import BoundPlan, BoundRequest, compile_bound
from mxrun.graph.node import Node
from mxrun.graph.symbol import Symbol
from mxrun.operator.register import AnyProperty, implementations

# Plans that are retained; one of a large network takes some megabytes.
_MAX_PLANS = 16

_plans: OrderedDict[Hashable, BoundPlan] = OrderedDict()
_guard = new_lock()


def bound_plan(request: BoundRequest) -> BoundPlan:
    """Return the plan of `compile_bound`, of which the last ones that were asked for are retained.

    Raises what `compile_bound` raises.
    """
    key = _key(request)
    with _guard:
        found = _plans.get(key)
        if found is not None:
            _plans.move_to_end(key)
            return found
    made = compile_bound(request)
    with _guard:
        _plans[key] = made
        while len(_plans) > _MAX_PLANS:
            _plans.popitem(last=False)
    return made


def _key(request: BoundRequest) -> Hashable:
    """Return everything on which the plan of a request depends."""
    return (
        _network(request.symbol),
        tuple(request.variables.items()),
        frozenset(request.inputs),
        tuple(request.gradients.items()),
        request.device,
        request.fuse,
        # Debugging verifies what it plans.
        flags.debug(),
    )


def _network(symbol: Symbol) -> Hashable:
    """Return the nodes of a symbol with their wiring, and what its operators may run on."""
    numbers = {node: number for number, node in enumerate(symbol.nodes)}
    types = dict.fromkeys(node.operator for node in symbol.nodes if node.prop is not None)
    return (
        tuple(_described(node, numbers) for node in symbol.nodes),
        tuple((numbers[head.node], head.index) for head in symbol.heads),
        tuple(tuple(implementations(name).values()) for name in types),
    )


def _described(node: Node, numbers: dict[Node, int]) -> Hashable:
    return (
        node.name,
        None if node.prop is None else _operator(node.prop),
        tuple((numbers[entry.node], entry.index) for entry in node.inputs),
        tuple(node.attributes.items()),
        # In messages of operators that fail.
        node.place,
        node.options,
    )


def _operator(prop: AnyProperty) -> Hashable:
    """Return what two properties of equal behaviour share: the class and the parameters.

    A property that has anything else is equal to itself alone.
    """
    kind, parameters = type(prop), prop.parameters
    computed = (name for name in vars(prop) if name != "parameters")
    if not all(isinstance(getattr(kind, name, None), cached_property) for name in computed):
        return prop
    return kind, tuple(
        (name, repr(getattr(parameters, name))) for name in type(parameters).model_fields
    )
