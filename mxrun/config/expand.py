"""Expansion of `blocks:` and `repeat:` to a flat list of layers with full names.

    blocks:
      conv_bn:
        parameters: {filters: null, stride: 1}    # null: must be given
        layers:
          - Convolution: {name: conv, num_filter: "${filters}", stride: ["${stride}", "${stride}"]}
          - BatchNorm: {name: bn}
    network:
      layers:
        - conv_bn: {name: stem, filters: 64}      # layers stem/conv and stem/bn
        - repeat:
            count: 3
            layers:
              - conv_bn: {name: "stage${i}", filters: "${64 * 2 ** i}"}

Inside a block `${input}` is the tensor that the block is applied to: the previous layer, or the one
in `inputs: [name]` where the block is used. A block's name refers to its last layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from mxrun.base.dataclass import dataclass
from mxrun.base.description import describe_value
from mxrun.base.errors import MAX_SHOWN, Diagnostic, Diagnostics, SourceLocation
from mxrun.base.keywords import RECURRENT, REPEAT
from mxrun.base.near_names import Suggestions, listed, nearest
from mxrun.config.blocks import BlockDefinition, read_blocks
from mxrun.config.interpolate import Interpolator, mentions
from mxrun.config.layer_edits import (
    CHANGE,
    INSERT_AFTER,
    INSERT_BEFORE,
    REMOVE,
    REPLACE,
    LayerEdits,
    read_edits,
    without_list,
)
from mxrun.config.layers import LayerConfig
from mxrun.config.load import MAX_VALUES
from mxrun.config.marked import SourceNode, entries_of
from mxrun.config.names import LONGEST_NAME, Names, automatic_stem, is_name, scope_of
from mxrun.config.recurrent import BodyChains, Chain

_DEEPEST_BLOCKS = 32


@dataclass(frozen=True)
class _ScopedEdits:
    """Edits of the layers within a scope, whose names are relative to it."""

    edits: LayerEdits
    scope: str


@dataclass(frozen=True)
class _Frame:
    """Context in which layers are expanded.

    scope, values of names, and enclosing blocks. prefix: beginning of automatic names. edits: those
    that apply to the layers, oldest first.
    """

    scope: str = ""
    names: Mapping[str, SourceNode] = field(default_factory=dict)
    chain: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    prefix: str = ""
    edits: tuple[_ScopedEdits, ...] = ()


@dataclass(frozen=True)
class _NamedItem:
    """Layer or use of a block, interpolated, with its full name.

    takes_input: whether an expression in it mentions the input of the block around it.
    """

    kind: str
    body: SourceNode
    name: SourceNode
    takes_input: bool


@dataclass(frozen=True)
class Expanded:
    """Tree without blocks and expressions, the chain of each layer, and the place of each block.

    removed: the place of the edit that removed each layer or block, by full name. files: see
    `mxrun.config.sources.Merged`.
    """

    root: SourceNode
    layers: tuple[SourceNode, ...]
    chains: tuple[Chain, ...]
    blocks: Mapping[str, SourceLocation]
    removed: Mapping[str, SourceLocation] = field(default_factory=dict)
    files: tuple[str, ...] = ()


def expand(root: SourceNode, diagnostics: Diagnostics) -> Expanded:
    """Expand a complete config; raises UserError if it exceeds the limits."""
    interpolator = Interpolator(diagnostics)
    entries = dict(entries_of(root))
    blocks = read_blocks(entries.pop("blocks", None), diagnostics)
    places = {name: block.place for name, block in blocks.items()}
    network = entries.get("network")
    layers = entries_of(network).get("layers")
    if network is not None and layers is not None:
        rest = {key: part for key, part in entries_of(network).items() if key != "layers"}
        entries["network"] = replace(network, value=rest)
    root = interpolator.interpolate(replace(root, value=entries), {})
    if network is None or layers is None:
        return Expanded(root, (), (), places)
    network = entries_of(root)["network"]
    inputs = entries_of(entries_of(network).get("inputs"))
    expander = _Expander(blocks, tuple(inputs), interpolator, diagnostics)
    if isinstance(layers.value, tuple):
        edits = read_edits(layers, diagnostics)
        expander.layers(layers, _Frame(edits=tuple(_ScopedEdits(each, "") for each in edits)))
        for own in (*edits, *(each for block in blocks.values() for each in block.edits)):
            diagnostics += own.problems()
        layers = SourceNode(tuple(expander.flat), layers.place, layers.key_place)
    elif isinstance(layers.value, Mapping):
        diagnostics.add(without_list("network.layers", layers))
    network = replace(network, value={**entries_of(network), "layers": layers})
    root = replace(root, value={**entries_of(root), "network": network})
    return Expanded(root, tuple(expander.flat), tuple(expander.chains), places, expander.removed)


class _Expander:
    """Appends expanded layers to `flat` in order, and the chain of blocks of each to `chains`."""

    def __init__(
        self,
        blocks: Mapping[str, BlockDefinition],
        inputs: Sequence[str],
        interpolator: Interpolator,
        diagnostics: Diagnostics,
    ) -> None:
        self.flat: list[SourceNode] = []
        self.chains: list[Chain] = []
        self.removed: dict[str, SourceLocation] = {}
        self._blocks = blocks
        self._interpolator = interpolator
        self._diagnostics = diagnostics
        self._suggestions = Suggestions(MAX_SHOWN)
        self._names = Names(inputs)
        self._automatic: dict[str, int] = {}
        self._previous = f"/{inputs[0]}" if inputs else None
        self._given_input: str | None = None
        """Input given where a block is used, until the block's first layer consumes it."""

    def layers(self, layers: SourceNode, frame: _Frame) -> None:
        """Expand a list of layers, blocks and repeats."""
        assert isinstance(layers.value, tuple)
        for item in layers.value:
            self._item(item, frame)

    def _problem(self, frame: _Frame, problem: str, place: SourceLocation, **more: str) -> None:
        self._diagnostics.add(Diagnostic(problem, place, chain=frame.chain, **more))

    def _item(self, item: SourceNode, frame: _Frame) -> None:
        if isinstance(item.value, str):
            item = SourceNode({item.value: SourceNode({}, item.place, item.place)}, item.place)
        if not isinstance(item.value, Mapping) or len(item.value) != 1:
            got = describe_value(item.value)
            if isinstance(item.value, Mapping):
                got = f"a mapping with {len(item.value)} keys: {', '.join(item.value)}"
            self._problem(
                frame,
                "a layer is one operator with its parameters",
                item.place,
                expected=LayerConfig.written,
                got=got,
                hint="indent the parameters below the operator"
                if isinstance(item.value, Mapping) and item.value
                else "",
            )
            return
        ((operator, body),) = item.value.items()
        if body.value is None:
            body = replace(body, value={})
        if not isinstance(body.value, Mapping):
            self._problem(
                frame,
                f"the parameters of {operator!r} are a mapping",
                body.place,
                expected="{parameter: value}",
                got=describe_value(body.value),
            )
        else:
            takes_input = mentions(body, "input")
            body = self._interpolated(operator, body, frame)
            name = self._full_name(operator, body, frame)
            self._edited(_NamedItem(operator, body, name, takes_input), frame, frame.edits)

    def _interpolated(self, kind: str, body: SourceNode, frame: _Frame) -> SourceNode:
        """Return an item's keys with values for expressions; layers within it keep theirs."""
        entries = dict(entries_of(body))
        layers = entries.pop("layers", None) if kind in (RECURRENT, REPEAT) else None
        rest = replace(body, value=entries)
        rest = self._interpolator.interpolate(rest, frame.names, frame.chain)
        return (
            rest if layers is None else replace(rest, value={**entries_of(rest), "layers": layers})
        )

    def _edited(self, item: _NamedItem, frame: _Frame, edits: tuple[_ScopedEdits, ...]) -> None:
        """Expand a layer or block as `edits` make it; what they add is subject to later edits."""
        if not edits:
            of_kind = {RECURRENT: self._recurrent, REPEAT: self._repeat}
            usual = self._use if item.kind in self._blocks else self._layer
            of_kind.get(item.kind, usual)(item, frame)
            return
        own, name = edits[0], str(item.name.value)
        local = name[len(own.scope) + 1 :] if own.scope else name
        own.edits.meet(local)
        later = replace(frame, edits=edits[1:], prefix=f"{name.rpartition('/')[2]}_")
        self._inserted(own.edits.find(INSERT_BEFORE, local), later)
        removed = own.edits.find(REMOVE, local)
        replacement = own.edits.find(REPLACE, local)
        if removed is not None:
            self.removed[name] = removed.place
        elif replacement is not None:
            self._replaced(item, replacement, later)
        else:
            change = own.edits.find(CHANGE, local)
            item = item if change is None else self._changed(item, change, frame)
            self._edited(item, frame, edits[1:])
        self._inserted(own.edits.find(INSERT_AFTER, local), later)

    def _inserted(self, layers: SourceNode | None, frame: _Frame) -> None:
        if layers is not None:
            self.layers(layers, frame)

    def _replaced(self, item: _NamedItem, replacement: SourceNode, frame: _Frame) -> None:
        """Expand what stands in the place of an item: a layer of its name, or layers within it."""
        name = str(item.name.value)
        if isinstance(replacement.value, tuple):
            self.layers(replacement, replace(frame, scope=name, prefix=""))
            return
        if isinstance(replacement.value, str):
            empty = SourceNode({}, replacement.place, replacement.place)
            replacement = replace(replacement, value={replacement.value: empty})
        assert isinstance(replacement.value, Mapping)
        given = {}
        for kind, body in replacement.value.items():
            entries = {} if body.value is None else body.value
            if isinstance(entries, Mapping) and kind != REPEAT:
                own = name[len(frame.scope) + 1 :] if frame.scope else name
                named = SourceNode(own, item.name.place, item.name.key_place)
                body = replace(body, value={"name": named, **entries})
            given[kind] = body
        self._item(replace(replacement, value=given), frame)

    def _changed(self, item: _NamedItem, change: SourceNode, frame: _Frame) -> _NamedItem:
        """Return an item with the parameters of `change` instead of its own."""
        takes_input = item.takes_input or mentions(change, "input")
        given = entries_of(self._interpolator.interpolate(change, frame.names, frame.chain))
        body = replace(item.body, value={**entries_of(item.body), **given})
        name = self._full_name(item.kind, body, frame) if "name" in given else item.name
        return _NamedItem(item.kind, body, name, takes_input)

    def _layer(self, item: _NamedItem, frame: _Frame) -> None:
        operator, body, name = item.kind, item.body, item.name
        entries = {"name": name, **{k: v for k, v in entries_of(body).items() if k != "name"}}
        if self._given_input and not item.takes_input and "inputs" not in entries:
            given = SourceNode(self._given_input, body.start)
            entries["inputs"] = SourceNode((given,), body.start, body.start)
        self._given_input = None
        layer = SourceNode(entries, body.place, body.key_place)
        self.flat.append(SourceNode({operator: layer}, body.start))
        self.chains.append(frame.chain)
        self._names.add(str(name.value))
        self._previous = f"/{name.value}"

    def _recurrent(self, item: _NamedItem, frame: _Frame) -> None:
        """Append a recurrence, whose layers are expanded under names relative to its own."""
        name, entries = str(item.name.value), dict(entries_of(item.body))
        layers = entries.pop("layers", None)
        if layers is None or not isinstance(layers.value, tuple) or not layers.value:
            place = item.body.start if layers is None else layers.place
            self._problem(frame, f"{RECURRENT} needs layers", place, expected="a list of layers")
            layers = SourceNode((), place)
        own = {key: part for key, part in entries.items() if key not in ("name", "layers")}
        read = (*entries_of(entries.get("sequences")), *entries_of(entries.get("memories")))
        for key in read:
            self._names.add(f"{name}/{key}")
        outside = self.flat, self.chains
        self.flat, self.chains, self._given_input = [], [], None
        self._previous = next((f"/{name}/{key}" for key in read), self._previous)
        chain = (*frame.chain, f"a layer of {RECURRENT} {name!r} at {item.body.start}")
        self.layers(layers, replace(frame, scope=name, chain=chain, prefix=""))
        inner = tuple(_relative(layer, f"{name}/") for layer in self.flat)
        chains = BodyChains(frame.chain, tuple(self.chains))
        self.flat, self.chains = outside
        body = replace(layers, value=inner)
        keys = SourceNode(
            {"name": item.name, **own, "layers": body}, item.body.place, item.body.key_place
        )
        self.flat.append(SourceNode({RECURRENT: keys}, item.body.start))
        self.chains.append(chains)
        self._names.add(name)
        self._previous = f"/{name}"

    def _full_name(self, kind: str, body: SourceNode, frame: _Frame) -> SourceNode:
        """Return the name given in `body`, or a numbered one per kind, with the frame's scope."""
        given = entries_of(body).get("name")
        prefix = f"{frame.scope}/" if frame.scope else ""
        if given is not None:
            full = prefix + str(given.value)
            if isinstance(given.value, str) and is_name(full):
                return replace(given, value=full)
            expected = "letters, digits, _ . - and / between words, at most 200 characters"
            self._problem(
                frame, "not a name", given.place, expected=expected, got=describe_value(given.value)
            )
        stem = prefix + frame.prefix + (automatic_stem(kind) or "layer")
        number = self._automatic.get(stem, 0)
        while f"{stem}{number}" in self._names or f"{stem}{number}" in self.removed:
            number += 1
        self._automatic[stem] = number + 1
        if len(stem) + 6 > LONGEST_NAME:
            expected = f"at most {LONGEST_NAME} characters"
            self._problem(frame, "the name grows too long", body.start, expected=expected)
        return SourceNode(f"{stem}{number}", body.start, body.start)

    def _repeat(self, item: _NamedItem, frame: _Frame) -> None:
        body, keys = item.body, ("count", "layers", "name")
        entries = entries_of(body)
        for key, part in entries.items():
            if key not in keys:
                hint = nearest(key, keys) or f"repeat has {listed(keys)}"
                self._problem(frame, f"unknown key {key!r} of repeat", part.start, hint=hint)
        layers = entries.get("layers")
        if layers is None or not isinstance(layers.value, tuple):
            place = layers.place if layers else body.start
            self._problem(frame, "repeat needs layers", place, expected="a list of layers")
            return
        if "count" not in entries:
            self._problem(frame, "repeat needs a count", body.start, expected="an integer")
            return
        count = entries["count"]
        if type(count.value) is not int or not 0 <= count.value <= MAX_VALUES:
            expected, got = f"an integer from 0 to {MAX_VALUES}", describe_value(count.value)
            self._problem(
                frame, "count is the number of repetitions", count.place, expected=expected, got=got
            )
            return
        for index in range(count.value):
            self._interpolator.count(1, count.place)
            names = {**frame.names, "i": SourceNode(index, count.place)}
            self.layers(layers, replace(frame, names=names))

    def _use(self, item: _NamedItem, frame: _Frame) -> None:
        kind, body, name = item.kind, item.body, str(item.name.value)
        block = self._blocks[kind]
        if kind in frame.blocks or len(frame.blocks) >= _DEEPEST_BLOCKS:
            circle = " -> ".join((*frame.blocks[-5:], kind))
            self._problem(frame, "blocks contain one another in a circle", body.start, got=circle)
            return
        self._take_inputs(kind, body, frame)
        names = self._arguments(kind, block, body, frame)
        source = self._given_input or self._previous
        if source is not None:
            names["input"] = SourceNode(source, body.start)
        chain = (*frame.chain, f"block {kind!r} is used as {name!r} at {body.start}")
        edits = (*(_ScopedEdits(each, name) for each in block.edits), *frame.edits)
        blocks = (*frame.blocks, kind)
        self.layers(block.layers, _Frame(name, names, chain, blocks, edits=edits))

    def _take_inputs(self, kind: str, body: SourceNode, frame: _Frame) -> None:
        given = entries_of(body).get("inputs")
        if given is None:
            return
        items = given.value
        if not isinstance(items, tuple) or len(items) != 1 or not isinstance(items[0].value, str):
            self._problem(
                frame,
                f"block {kind!r} is applied to one input",
                given.place,
                expected="[name]",
                got=describe_value(given.value),
            )
            return
        found = self._names.resolve(items[0].value, frame.scope)
        if found is None:
            hint = removal_hint(items[0].value, frame.scope, self.removed)
            hint = hint or self._suggestions.nearest(items[0].value, self._names)
            hint = hint or "a layer is used after it is defined"
            problem = f"there is no layer {items[0].value!r} before this one"
            self._problem(frame, problem, items[0].place, hint=hint)
            return
        self._given_input = f"/{found[0]}" + (f"[{found[1]}]" if found[1] else "")

    def _arguments(
        self, kind: str, block: BlockDefinition, body: SourceNode, frame: _Frame
    ) -> dict[str, SourceNode]:
        """Return the values of a block's parameters for the use in `body`."""
        given = entries_of(body)
        known = (*block.parameters, "name", "inputs")
        for key, part in given.items():
            if key not in known:
                hint = nearest(key, known) or f"known: {', '.join(known)}"
                problem = f"block {kind!r} has no parameter {key!r}"
                self._problem(frame, problem, part.start, hint=hint)
        names: dict[str, SourceNode] = {}
        for key, default in block.parameters.items():
            if key in given:
                names[key] = given[key]
            elif default.value is None:
                hint = f"declared at {default.start}"
                problem = f"block {kind!r} needs the parameter {key!r}"
                self._problem(frame, problem, body.start, hint=hint)
                names[key] = SourceNode(1, default.place)
            else:
                names[key] = self._interpolator.interpolate(default, names, frame.chain)
            self._interpolator.check_depth(names[key])
        return names


def _relative(layer: SourceNode, prefix: str) -> SourceNode:
    """Return an expanded layer whose name is relative to a scope."""
    ((kind, body),) = entries_of(layer).items()
    name = entries_of(body)["name"]
    own = replace(name, value=str(name.value).removeprefix(prefix))
    return replace(layer, value={kind: replace(body, value={**entries_of(body), "name": own})})


def removal_hint(reference: str, scope: str, removed: Mapping[str, SourceLocation]) -> str:
    """Return the hint for a reference, written in `scope`, to a layer that an edit removes.

    Empty if none of that name was removed.
    """
    name = reference.partition("[")[0]
    scope = "" if name.startswith("/") else scope
    name = name.lstrip("/")
    while True:
        full = f"{scope}/{name}" if scope else name
        for gone in (full, scope_of(full)):
            if gone in removed:
                return f"{gone!r} is removed at {removed[gone]}"
        if not scope:
            return ""
        scope = scope_of(scope)
