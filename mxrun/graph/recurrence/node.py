"""Nodes that are recurrences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.near_names import nearest
from mxrun.graph.node import Node, NodeEntry
from mxrun.graph.recurrence.operator import RecurrenceProperty
from mxrun.graph.recurrence.parameters import RecurrenceParameters


def recurrent_node(
    name: str,
    body: Sequence[NodeEntry],
    parameters: RecurrenceParameters,
    given: Mapping[str, NodeEntry],
    place: SourceLocation | None = None,
) -> Node:
    """Return a node that applies `body` to every step.

    given: tensors by the names of the operator's arguments; another variable of the body stands for
    itself. Raises UserError for a name that is no argument, and for a sequence, an initial value or
    lengths that are not given.
    """
    prop = RecurrenceProperty(parameters, body)
    prop.require_consistent()
    names = prop.list_arguments()
    if len(set(names)) < len(names):
        twice = next(each for each in names if names.count(each) > 1)
        raise UserError(Diagnostic(f"{name!r} has two arguments named {twice!r}", place))
    unknown = [key for key in given if key not in names]
    missing = [key for key in names if key not in given and key not in prop.others]
    problems = [
        Diagnostic(f"{name!r} has no argument {key!r}", place, hint=nearest(key, names))
        for key in unknown
    ]
    problems += [Diagnostic(f"{name!r} needs its argument {key!r}", place) for key in missing]
    if problems:
        raise UserError(problems)
    entries = tuple(given.get(key) or NodeEntry(prop.variable(key)) for key in names)
    return Node(name, prop, entries, place=place)
