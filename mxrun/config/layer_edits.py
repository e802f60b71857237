"""Edits of the layers of a config that another one extends.

    extends: digits_lenet
    network:
      layers:
        change: {fc2: {num_hidden: 3}}                    # parameters that replace the layer's own
        replace: {relu1: {Activation: {act_type: tanh}}}  # in its place and with its name
        insert_before: {pool2: [{Dropout: {p: 0.3}}]}
        insert_after: {relu2: [BatchNorm]}
        remove: [relu3]

Names are those of the layers in the extended config, as `mxrun check` shows them, or of uses of
blocks. All edits of one file refer to what that file extends, so their order does not matter. The
layers of a block's definition are edited in the same way (`blocks: {NAME: {layers: {...}}}`), by
their names within the block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from mxrun.base.dataclass import dataclass
from mxrun.base.description import describe_value
from mxrun.base.errors import Diagnostic, Diagnostics
from mxrun.base.near_names import listed, nearest
from mxrun.base.validation import Path
from mxrun.config.marked import SourceNode

CHANGE, REPLACE, REMOVE = "change", "replace", "remove"
INSERT_BEFORE, INSERT_AFTER = "insert_before", "insert_after"
EDITS = (CHANGE, REPLACE, INSERT_BEFORE, INSERT_AFTER, REMOVE)

_FORMS = {
    CHANGE: "{layer: {parameter: value}}",
    REPLACE: "{layer: {Operator: {parameter: value}}}",
    INSERT_BEFORE: "{layer: [{Operator: {parameter: value}}]}",
    INSERT_AFTER: "{layer: [{Operator: {parameter: value}}]}",
    REMOVE: "[layer, ...]",
}
# Edits after which the layer of that name, or what it was, is no longer there.
_TAKES_AWAY = (REPLACE, REMOVE)
_PAST = {CHANGE: "changed", REPLACE: "replaced", REMOVE: "removed"}
_VERBS = {
    CHANGE: "to change",
    REPLACE: "to replace",
    INSERT_BEFORE: "to insert before",
    INSERT_AFTER: "to insert after",
    REMOVE: "to remove",
}


@dataclass(frozen=True)
class EditedLayers(SourceNode):
    """List of layers, and the mappings of edits in the sources that extend it, oldest first."""

    edits: tuple[SourceNode, ...] = field(default=(), compare=False)


def is_layers(path: Path) -> bool:
    """Return whether the value at `path` of a config is a list of layers that can be edited."""
    return path == ("network", "layers") or (
        len(path) == 3 and path[0] == "blocks" and path[2] == "layers"
    )


def edits_of(layers: SourceNode) -> tuple[SourceNode, ...]:
    """Return the mappings of edits of a list of layers, oldest first."""
    return layers.edits if isinstance(layers, EditedLayers) else ()


def with_edits(layers: SourceNode, *edits: SourceNode) -> SourceNode:
    """Return a list of layers with these edits instead of its own."""
    return EditedLayers(layers.value, layers.place, layers.key_place, edits)


def without_list(name: str, edits: SourceNode) -> Diagnostic:
    """Return the diagnostic for edits where no extended config has a list of layers."""
    return Diagnostic(
        f"{name}: there are no layers to edit",
        edits.start,
        "a list of layers, or `extends:` with a config that has them",
        describe_value(edits.value),
        hint="a mapping edits the layers of the config that this one extends",
    )


class LayerEdits:
    """Edits of one list of layers by one source; collects the names that it meets.

    base: the file that is extended. Names are relative to the scope of the list.
    """

    def __init__(self, base: str, kinds: Mapping[str, Mapping[str, SourceNode]]) -> None:
        self._base = base
        self._kinds = kinds
        self._seen: dict[str, None] = {}

    def meet(self, name: str) -> None:
        """Note that the list has a layer or a block of that name."""
        self._seen[name] = None

    def find(self, kind: str, name: str) -> SourceNode | None:
        """Return the edit of one kind for the layer or block of that name, or None."""
        return self._kinds[kind].get(name)

    def problems(self) -> Iterator[Diagnostic]:
        """Yield a diagnostic for each edit of a layer that the list does not have.

        A list that is not used, such as that of a block, is not checked.
        """
        for kind, edits in self._kinds.items() if self._seen else ():
            for name, edit in edits.items():
                if name not in self._seen:
                    yield self._unknown(kind, name, edit)

    def _unknown(self, kind: str, name: str, edit: SourceNode) -> Diagnostic:
        for taking in _TAKES_AWAY:
            for other, taken in self._kinds[taking].items():
                if name.startswith(f"{other}/"):
                    problem = f"the layer {name!r} is edited, but {other!r} is {_PAST[taking]}"
                    return Diagnostic(problem, edit.start, hint=f"that is at {taken.start}")
        hint = nearest(name, self._seen) or f"its layers: {listed(self._seen)}"
        problem = f"there is no layer {name!r} {_VERBS[kind]}"
        return Diagnostic(problem, edit.start, f"a layer of {self._base}", name, hint=hint)


def read_edits(layers: SourceNode, diagnostics: Diagnostics) -> tuple[LayerEdits, ...]:
    """Read the edits of a list of layers; problems in their form are added to `diagnostics`."""
    edits = edits_of(layers)
    bases = (layers, *edits)
    return tuple(
        _read(base.place.file, each, diagnostics) for base, each in zip(bases, edits, strict=False)
    )


def _read(base: str, edits: SourceNode, diagnostics: Diagnostics) -> LayerEdits:
    assert isinstance(edits.value, Mapping)
    for key, part in edits.value.items():
        if key not in EDITS:
            hint = nearest(key, EDITS) or f"known edits: {', '.join(EDITS)}"
            diagnostics.add(Diagnostic(f"unknown edit {key!r} of layers", part.start, hint=hint))
    given = {kind: edits.value.get(kind) for kind in EDITS}
    kinds = {kind: _by_layer(kind, part, diagnostics) for kind, part in given.items()}
    for kind, other in ((CHANGE, REPLACE), (CHANGE, REMOVE), (REPLACE, REMOVE)):
        for name in kinds[kind].keys() & kinds[other].keys():
            problem = f"the layer {name!r} is {_PAST[kind]} and {_PAST[other]}"
            place, first = kinds[other][name].start, kinds[kind][name].start
            hint = f"leave out this edit, or that at {first}"
            diagnostics.add(Diagnostic(problem, place, "one of the two", hint=hint))
    return LayerEdits(base, kinds)


def _by_layer(
    kind: str, edits: SourceNode | None, diagnostics: Diagnostics
) -> Mapping[str, SourceNode]:
    """Return the well-formed edits of one kind by the name of their layer."""
    if edits is None or edits.value is None:
        return {}
    if kind == REMOVE:
        return _removed(edits, diagnostics)
    if not isinstance(edits.value, Mapping):
        diagnostics.add(_malformed(kind, edits))
        return {}
    found = {}
    for name, edit in edits.value.items():
        if kind == CHANGE and edit.value is None:
            continue
        if _is_well_formed(kind, edit):
            found[name] = edit
        else:
            diagnostics.add(_malformed(kind, edit))
    return found


def _removed(edits: SourceNode, diagnostics: Diagnostics) -> Mapping[str, SourceNode]:
    if not isinstance(edits.value, tuple):
        diagnostics.add(_malformed(REMOVE, edits))
        return {}
    found = {}
    for item in edits.value:
        if isinstance(item.value, str):
            found[item.value] = replace(item, key_place=None)
        else:
            diagnostics.add(_malformed(REMOVE, item))
    return found


def _is_well_formed(kind: str, edit: SourceNode) -> bool:
    if kind == CHANGE:
        return isinstance(edit.value, Mapping)
    if kind == REPLACE:
        return isinstance(edit.value, (Mapping, str)) or bool(
            isinstance(edit.value, tuple) and edit.value
        )
    return isinstance(edit.value, tuple)


def _malformed(kind: str, edit: SourceNode) -> Diagnostic:
    problem = f"{kind}: is not of the form {_FORMS[kind]}"
    return Diagnostic(problem, edit.place, _FORMS[kind], describe_value(edit.value))
