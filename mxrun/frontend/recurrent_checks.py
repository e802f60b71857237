"""Checks of recurrences: what their layers and memories are, and what their inputs must be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mxrun.base.errors import Diagnostic
from mxrun.config import RecurrentConfig
from mxrun.graph.infer import InferredSpecs
from mxrun.graph.node import Node, NodeEntry, topological
from mxrun.graph.recurrence.operator import RecurrenceProperty


def misplaced(
    layer: RecurrentConfig, own: Mapping[str, Node], heads: Sequence[NodeEntry]
) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each layer that cannot be within, and for what nothing reads.

    own: nodes of the layers, sequences and memories by name. heads: what the recurrence returns or
    remembers.
    """
    reached = set(topological(heads))
    read = {entry for node in reached for entry in node.inputs} | {*heads}
    last = {f"{layer.name}/{name}" for name in layer.keys.final}
    for name, node in own.items():
        expected, got = f"a layer that reads it within {layer.name!r}", "none"
        if node.prop is None:
            if NodeEntry(node) in read or name in last:
                continue
            kind = "memory" if name.rpartition("/")[2] in layer.keys.memories else "sequence"
            problem, hint = f"nothing reads the {kind} {name!r}", "remove it"
            if kind == "sequence" and len(layer.keys.sequences) == 1:
                hint = "a recurrence that reads no sequence has steps: N in place of sequences"
        elif node.prop.loss_output is not None:
            problem = f"{node.operator} {node.name!r}: a recurrence has no loss of its own"
            expected, got = "a layer without a loss", node.operator
            hint = f"move it behind {layer.name!r}, whose outputs have all steps"
        elif node.prop.list_auxiliary_states():
            title = f"{node.operator} {node.name!r}"
            problem = f"{title} has states, which the steps of a recurrence cannot share"
            expected, got = "a layer without states", node.operator
            hint = "LayerNorm normalises without states"
        elif node not in reached:
            problem = f"nothing reads the layer {node.name!r}"
            hint = f"remove it, or add it to the outputs of {layer.name!r}"
        else:
            continue
        yield Diagnostic(problem, node.place, expected, got, hint=hint, chain=layer.chain)


def no_lengths(layer: RecurrentConfig, rank: int | None) -> Iterator[Diagnostic]:
    """Yield a diagnostic if a tensor of a rank is not one number for each record."""
    if rank is not None and rank != 1:
        yield Diagnostic(
            f"{layer.name!r}: lengths is one number for each record",
            layer.reference("lengths").place,
            expected="a tensor with the batch as its only axis",
            got=f"one with {rank} axes, the batch included",
            hint="an input with the numbers of steps is declared as `lengths: []`",
            chain=layer.chain,
        )


def undetermined(nodes: Iterable[Node], inference: InferredSpecs) -> Iterator[Diagnostic]:
    """Yield a diagnostic for each recurrence of unknown shapes, or with too few steps.

    inference: complete but for outputs of recurrences.
    """
    for node in nodes:
        prop = node.prop
        if not isinstance(prop, RecurrenceProperty):
            continue
        arguments = [inference.spec(entry) for entry in node.argument_entries()]
        steps, body = prop.count(arguments), prop.body_specs(arguments)
        if not body.complete:
            yield Diagnostic(
                f"not enough is known: the shapes within {node.name!r}",
                node.place,
                expected="a known number of records, and known shapes of memories",
                got=f"unknown shapes of: {', '.join(body.unknown)}",
                hint="give memories their `shape`, and one of them its `initial` value",
            )
            return
        for memory in prop.memories:
            if memory.offset > steps:
                yield Diagnostic(
                    f"{node.name!r}: the memory {memory.name!r} reads {memory.offset} steps before",
                    prop.variable(memory.name).place,
                    expected=f"an offset of at most {steps}",
                    got=str(memory.offset),
                    hint=f"there are {steps} steps",
                )
        yield from undetermined(prop.nodes, body)
