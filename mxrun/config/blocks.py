"""Definitions of blocks: the section `blocks:`."""

from __future__ import annotations

from collections.abc import Mapping

from mxrun.base.dataclass import dataclass
from mxrun.base.description import describe_value
from mxrun.base.errors import Diagnostic, Diagnostics, SourceLocation
from mxrun.base.keywords import RECURRENT, REPEAT
from mxrun.base.near_names import nearest
from mxrun.config.arithmetic import RESERVED
from mxrun.config.layer_edits import LayerEdits, read_edits, without_list
from mxrun.config.marked import SourceNode, entries_of
from mxrun.config.names import is_word

RESERVED_PARAMETERS = frozenset({"name", "inputs", "input", "i", *RESERVED})


@dataclass(frozen=True)
class BlockDefinition:
    """Parameterised group of layers; a parameter whose default is null must be given."""

    place: SourceLocation
    parameters: Mapping[str, SourceNode]
    layers: SourceNode
    edits: tuple[LayerEdits, ...]


def read_blocks(node: SourceNode | None, diagnostics: Diagnostics) -> dict[str, BlockDefinition]:
    """Return the well-formed blocks by name; problems are added to `diagnostics`."""
    if node is None or node.value is None:
        return {}
    if not isinstance(node.value, Mapping):
        diagnostics.add(
            Diagnostic(
                "blocks: must be a mapping", node.place, "a mapping", describe_value(node.value)
            )
        )
        return {}
    found = {name: _block(name, body, diagnostics) for name, body in node.value.items()}
    return {name: block for name, block in found.items() if block is not None}


def _block(name: str, body: SourceNode, diagnostics: Diagnostics) -> BlockDefinition | None:
    before = len(diagnostics)
    if not is_word(name) or name in (REPEAT, RECURRENT):
        expected = f"letters, digits, _ . -, not {REPEAT!r} or {RECURRENT!r}"
        diagnostics.add(Diagnostic("not a name for a block", body.start, expected, repr(name)))
    entries = entries_of(body)
    for key, part in entries.items():
        if key not in ("parameters", "layers"):
            hint = nearest(key, ("parameters", "layers")) or "a block has parameters and layers"
            diagnostics.add(Diagnostic(f"unknown key {key!r}", part.start, hint=hint))
    layers = entries.get("layers")
    if layers is not None and isinstance(layers.value, Mapping):
        diagnostics.add(without_list(f"block {name!r}", layers))
    elif layers is None or not isinstance(layers.value, tuple) or not layers.value:
        place = layers.place if layers else body.start
        diagnostics.add(Diagnostic(f"block {name!r} needs layers", place, "a list of layers"))
    parameters = entries.get("parameters")
    if parameters is not None and not isinstance(parameters.value, (Mapping, type(None))):
        got = describe_value(parameters.value)
        diagnostics.add(
            Diagnostic("parameters: must be a mapping", parameters.place, "a mapping", got)
        )
    for key, part in entries_of(parameters).items():
        if not is_word(key) or key in RESERVED_PARAMETERS:
            problem = f"a parameter of a block cannot be named {key!r}"
            diagnostics.add(Diagnostic(problem, part.start, hint="choose another name"))
    if layers is None or len(diagnostics) > before:
        return None
    edits = read_edits(layers, diagnostics)
    return BlockDefinition(body.start, entries_of(parameters), layers, edits)
