"""Recurrences in the list of layers: `recurrent:` with layers of its own.

    network:
      layers:
        - recurrent:
            name: rnn
            sequences: {x: embedded}               # name within: layer outside, read at each step
            memories: {h: {layer: next, shape: [128]}}   # value of `next` one step before
            layers:
              - Concat: {name: both, inputs: [x, h]}
              - FullyConnected: {name: fc, num_hidden: 128}
              - Activation: {name: next, act_type: tanh}
            outputs: [next]
            final: [h]                             # further output `rnn[h]`

The layers within are called `rnn/fc`, and so on; weights are shared by all steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import ClassVar, TypeAlias

from pydantic import ValidationError

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, Diagnostics
from mxrun.base.keywords import RECURRENT
from mxrun.base.near_names import nearest
from mxrun.config.file_keys import RecurrentKeys
from mxrun.config.layers import LayerConfig, read_layer
from mxrun.config.marked import SourceNode, entries_of
from mxrun.config.names import joined
from mxrun.config.translate import translate

Chain: TypeAlias = "tuple[str, ...] | BodyChains"


@dataclass(frozen=True)
class BodyChains:
    """Chains of blocks of a recurrence, `own`, and of its layers."""

    own: tuple[str, ...]
    layers: tuple[Chain, ...]


@dataclass(frozen=True)
class RecurrentConfig(LayerConfig):
    """Recurrence: `keys` as written, and its layers.

    node: the mapping of the keys, with places.
    """

    keys: RecurrentKeys = field(kw_only=True)
    layers: tuple[LayerConfig, ...] = field(kw_only=True)
    node: SourceNode = field(kw_only=True, compare=False)

    written: ClassVar[str] = "{recurrent: {key: value}}"

    def reference(self, *path: str | int) -> SourceNode:
        """Return the name written at a path of the keys."""
        return self.node.find(*path)


def read_layers(
    layers: Sequence[SourceNode],
    chains: Sequence[Chain],
    diagnostics: Diagnostics,
    scope: str = "",
) -> tuple[LayerConfig, ...]:
    """Convert expanded layers; problems are added to `diagnostics`.

    scope: that to which their names are relative.
    """
    found: list[LayerConfig] = []
    for item, chain in zip(layers, chains, strict=True):
        if isinstance(chain, BodyChains):
            layer = _recurrent(item, chain, diagnostics, scope)
            found += [] if layer is None else [layer]
        else:
            found.append(read_layer(item, chain, diagnostics, scope))
    return tuple(found)


def _recurrent(
    item: SourceNode, chains: BodyChains, diagnostics: Diagnostics, scope: str
) -> RecurrentConfig | None:
    node = item.find(RECURRENT)
    assert isinstance(node.value, Mapping)
    entries = node.value
    name = joined(scope, str(entries["name"].value))
    body = entries.get("layers")
    items = body.value if body is not None and isinstance(body.value, tuple) else ()
    layers = read_layers(items, chains.layers, diagnostics, name)
    given = {key: part.plain() for key, part in entries.items() if key not in ("name", "layers")}
    try:
        keys = RecurrentKeys.model_validate({**given, "layers": layers})
    except ValidationError as error:
        without = [] if layers or body is None else [("layers",)]
        problems = translate(error, node, RecurrentKeys, without, grammar=("name",))
        diagnostics += (replace(each, chain=chains.own) for each in problems)
        return None
    own = read_layer(
        SourceNode({RECURRENT: replace(node, value={"name": entries["name"]})}, item.place),
        chains.own,
        diagnostics,
        scope,
    )
    found = RecurrentConfig(**vars(own), keys=keys, layers=layers, node=node)
    diagnostics += _inconsistent(found, is_nested=scope != "")
    return found


def _inconsistent(layer: RecurrentConfig, is_nested: bool) -> Iterator[Diagnostic]:
    """Yield the problems of keys that contradict each other."""
    for each in (
        *_step_count(layer),
        *_memories(layer),
        *_final(layer),
        *_carried(layer, is_nested),
        *_directions(layer),
    ):
        yield replace(each, problem=f"{layer.name!r}{each.problem}", chain=layer.chain)


def _step_count(layer: RecurrentConfig) -> Iterator[Diagnostic]:
    keys, node = layer.keys, layer.node
    given = "sequences" if keys.sequences else "steps"
    if not keys.sequences and keys.steps is None:
        place = node.find("sequences").place if "sequences" in entries_of(node) else node.start
        hint = "without sequences, give the number of steps by steps: N"
        yield Diagnostic(" reads no sequence", place, "sequences: {x: data}", "none", hint=hint)
    elif keys.sequences and keys.steps is not None:
        problem = " has sequences and a number of steps"
        hint = "leave out steps: they are those of the sequences"
        yield Diagnostic(problem, node.find("steps").start, "one of the two", given, hint=hint)


def _memories(layer: RecurrentConfig) -> Iterator[Diagnostic]:
    memories, found = layer.keys.memories, set[str]()
    # A memory that is named like a layer is reported with that.
    layers = {each.name for each in layer.layers}
    for name in memories:
        if name in layer.keys.sequences:
            place = layer.node.find("memories", name).start
            problem, hint = f" has a sequence and a memory named {name!r}", "choose another name"
            yield Diagnostic(problem, place, "names that differ", name, hint=hint)
        path = [name]
        while path[-1] in memories and path[-1] not in path[:-1]:
            path.append(memories[path[-1]].layer)
        is_taken = joined(layer.name, name) in layers
        is_new = path[-1] == name and found.isdisjoint(path) and not is_taken
        if is_new and all(memories[each].initial is None for each in path):
            place = layer.node.find("memories", name, "layer").place
            problem = f": no layer computes the memory {name!r}"
            hint = "a memory names the layer that computes its next value"
            yield Diagnostic(problem, place, "a layer", " <- ".join(path), hint=hint)
        found.update(path)


def _final(layer: RecurrentConfig) -> Iterator[Diagnostic]:
    known = layer.keys.memories
    for position, name in enumerate(layer.keys.final):
        if name not in known:
            hint = nearest(name, known) or "final lists memories of the recurrence"
            place, problem = layer.node.find("final", position).place, f" has no memory {name!r}"
            expected = f"one of {', '.join(known)}" if known else "a memory"
            yield Diagnostic(problem, place, expected, name, hint=hint)


def _carried(layer: RecurrentConfig, is_nested: bool) -> Iterator[Diagnostic]:
    keys = layer.keys
    for name, memory in keys.memories.items():
        others = {
            "initial": memory.initial is not None,
            "lengths": keys.lengths is not None,
            "reverse": keys.reverse,
            "bidirectional": keys.bidirectional,
            "a recurrence around it": is_nested,
        }
        for key in (key for key, is_set in others.items() if memory.carry and is_set):
            place = layer.node.find("memories", name, "carry").start
            problem = f": a memory that is carried cannot be used with {key}"
            hint = "leave out carry: the memory then begins anew in every batch"
            yield Diagnostic(problem, place, f"carry without {key}", "both", hint=hint)


def _directions(layer: RecurrentConfig) -> Iterator[Diagnostic]:
    if layer.keys.reverse and layer.keys.bidirectional:
        place, problem = layer.node.find("reverse").start, " is reversed and bidirectional"
        hint = "leave out reverse: a bidirectional recurrence runs in both directions"
        yield Diagnostic(problem, place, "one of the two", "both", hint=hint)
