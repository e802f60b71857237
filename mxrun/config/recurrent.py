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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

from pydantic import ValidationError

from mxrun.base.errors import Diagnostic, Diagnostics
from mxrun.base.keywords import RECURRENT
from mxrun.base.near_names import nearest
from mxrun.config.file_keys import RecurrentKeys
from mxrun.config.layers import LayerConfig, read_layer
from mxrun.config.marked import SourceNode
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
    diagnostics += _inconsistent(found)
    return found


def _inconsistent(layer: RecurrentConfig) -> Sequence[Diagnostic]:
    """Return the problems of keys that contradict each other."""
    keys, found = layer.keys, []
    for name in keys.memories.keys() & keys.sequences.keys():
        place = layer.node.find("memories", name).start
        problem = f"{layer.name!r} has a sequence and a memory named {name!r}"
        found.append(Diagnostic(problem, place, hint="choose another name", chain=layer.chain))
    for position, name in enumerate(keys.final):
        if name not in keys.memories:
            hint = nearest(name, keys.memories) or "final lists memories of the recurrence"
            place, problem = layer.node.find("final", position).place, f"no memory {name!r}"
            expected = f"one of {', '.join(keys.memories)}" if keys.memories else ""
            found.append(
                Diagnostic(
                    f"{layer.name!r} has {problem}", place, expected, name, hint, layer.chain
                )
            )
    for name, memory in keys.memories.items():
        others = {
            "initial": memory.initial is not None,
            "lengths": keys.lengths is not None,
            "reverse": keys.reverse,
            "bidirectional": keys.bidirectional,
        }
        for key in (key for key, is_set in others.items() if memory.carry and is_set):
            place = layer.node.find("memories", name, "carry").start
            problem = f"{layer.name!r}: a memory that is carried cannot be used with {key}"
            hint = "leave out carry: the memory then begins anew in every batch"
            found.append(Diagnostic(problem, place, hint=hint, chain=layer.chain))
    if keys.reverse and keys.bidirectional:
        place = layer.node.find("reverse").start
        problem = f"{layer.name!r} is reversed and bidirectional"
        hint = "leave out reverse: a bidirectional recurrence runs in both directions"
        found.append(Diagnostic(problem, place, "one of the two", hint=hint, chain=layer.chain))
    return found
