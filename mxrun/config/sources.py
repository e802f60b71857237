"""Merging of a config's sources: files linked by `extends:`, dictionaries, and overrides.

Mappings merge deeply and the later takes precedence; lists and scalars are replaced entirely, but a
mapping in the place of a list of layers edits it (`layer_edits`). The name of a run is not
inherited. Every value retains the place where it was written: its own file, `<command line>` with
the argument's number as the line, or the dotted key of a value that Python code gives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from mxrun.base.description import describe_value
from mxrun.base.errors import PYTHON, Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.near_names import nearest
from mxrun.base.validation import Path as KeyPath
from mxrun.base.validation import dotted
from mxrun.config.bundled import bundled_config, bundled_configs
from mxrun.config.foreign_files import mxnet_symbol
from mxrun.config.layer_edits import EDITS, edits_of, is_layers, with_edits
from mxrun.config.load import load_file, load_text
from mxrun.config.marked import SourceNode
from mxrun.config.python_values import PythonValues

COMMAND_LINE = "<command line>"
PATHLESS = (COMMAND_LINE, PYTHON)
"""Places without a file: paths in their values are relative to the working folder."""

Overrides: TypeAlias = Sequence[str] | Mapping[str, Any]
"""Arguments `key.key=value`, or plain values by dotted key."""

_MAX_FILES = 32
_STEP = re.compile(r'(?P<dot>\.?)(?:"(?P<quoted>[^"]*)"|(?P<word>[^.\[\]="]+)|\[(?P<index>\d+)\])')

# Choices written {name: parameters}: another name replaces the entire choice.
_CHOICES = (("train", "optimizer"), ("train", "initializer"), ("train", "schedule"))


class Merged(NamedTuple):
    """Config merged with what it extends.

    files: names in places, each extended by the file before it; the first is that of the config.
    """

    root: SourceNode
    files: tuple[str, ...]


def read_sources(
    source: Path | Mapping[str, Any], overrides: Overrides, diagnostics: Diagnostics
) -> Merged:
    """Return a config merged with the files it extends and the overrides.

    source: a file, or the config itself. overrides: arguments `key.key=value`, or plain values by
    dotted key. Problems are added to `diagnostics`; raises UserError if a file cannot be read at
    all.
    """
    if isinstance(source, Path):
        merged = _with_bases(source, str(source), (), diagnostics)
    else:
        given = PythonValues(diagnostics).tree(source, ())
        merged = _merged_with_bases(given, Path(PYTHON), (), diagnostics)
    return merged._replace(root=overridden(merged.root, overrides, diagnostics))


def overridden(root: SourceNode, overrides: Overrides, diagnostics: Diagnostics) -> SourceNode:
    """Return a tree with the values of `overrides`; problems are added to `diagnostics`."""
    if isinstance(overrides, Mapping):
        values = PythonValues(diagnostics)
        for key, value in overrides.items():
            try:
                root = _override_by_key(root, key, value, values)
            except UserError as error:
                diagnostics += error.diagnostics
        return root
    for number, argument in enumerate(overrides, 1):
        try:
            root = _override(root, argument, number, diagnostics)
        except UserError as error:
            diagnostics += error.diagnostics
    return root


def _with_bases(
    path: Path, shown: str, open_files: tuple[Path, ...], diagnostics: Diagnostics
) -> Merged:
    return _merged_with_bases(load_file(path, shown, diagnostics), path, open_files, diagnostics)


def _merged_with_bases(
    root: SourceNode, path: Path, open_files: tuple[Path, ...], diagnostics: Diagnostics
) -> Merged:
    """Return the config `root`, read from `path`, merged over the file that it extends."""
    if root.value is None:
        raise UserError(Diagnostic("the config is empty", root.place, "a mapping"))
    if not isinstance(root.value, Mapping):
        raise UserError(
            Diagnostic("a config is a mapping", root.place, "a mapping", describe_value(root.value))
        )
    symbol = mxnet_symbol(root.value, root.place)
    if symbol is not None:
        raise UserError(symbol)
    files = (root.place.file,)
    base = root.value.get("extends")
    if base is None:
        return Merged(root, files)
    own = replace(root, value={k: v for k, v in root.value.items() if k != "extends"})
    if not isinstance(base.value, str) or not base.value:
        diagnostics.add(
            Diagnostic(
                "extends: names a config",
                base.place,
                "a path, or the name of a bundled config",
                describe_value(base.value),
            )
        )
        return Merged(own, files)
    open_files = (*open_files, _identity(path, base.place))
    base_path = _base_path(path.parent, base.value, base.place)
    if _identity(base_path, base.place) in open_files:
        problem = Diagnostic(
            "files extend one another in a circle",
            base.place,
            got=" -> ".join(file.name for file in (*open_files, base_path)),
        )
        raise UserError(problem)
    if len(open_files) >= _MAX_FILES:
        raise UserError(Diagnostic(f"more than {_MAX_FILES} files extend one another", base.place))
    inherited, others = _load_base(base_path, base.place, open_files, diagnostics)
    assert isinstance(inherited.value, Mapping)
    unnamed = {key: part for key, part in inherited.value.items() if key != "name"}
    return Merged(_merge(replace(inherited, value=unnamed), own, ()), files + others)


def _base_path(folder: Path, name: str, place: SourceLocation) -> Path:
    """Return the path of an extended config: a file relative to `folder`, or a bundled config.

    Raises UserError if there is neither.
    """
    path = folder / name
    try:
        exists = path.exists()
    except (OSError, ValueError):
        # Reading the file reports the reason.
        exists = True
    if exists:
        return path
    bundled = bundled_config(name)
    if bundled is None:
        known = bundled_configs()
        raise UserError(
            Diagnostic(
                "extends: there is no such file or bundled config",
                place,
                f"a path relative to this file, or one of {', '.join(known)}",
                name,
                hint=nearest(Path(name).stem, known),
            )
        )
    return bundled


def _identity(path: Path, place: SourceLocation) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(Diagnostic(f"cannot open the file: {error}", place)) from error


def _load_base(
    path: Path, named_at: SourceLocation, open_files: tuple[Path, ...], diagnostics: Diagnostics
) -> Merged:
    try:
        return _with_bases(path, str(path), open_files, diagnostics)
    except UserError as error:
        first = error.diagnostics[0]
        because = (f"extended from {named_at}", *first.chain)
        raise UserError([replace(first, chain=because), *error.diagnostics[1:]]) from error


def _merge(base: SourceNode, later: SourceNode, path: KeyPath) -> SourceNode:
    """Merge `later` over `base`: mappings key by key, everything else replaced.

    A mapping over a list of layers becomes an edit of it.
    """
    if is_layers(path) and isinstance(base.value, tuple) and isinstance(later.value, Mapping):
        return with_edits(base, *edits_of(base), later)
    if not (isinstance(base.value, Mapping) and isinstance(later.value, Mapping)):
        return later
    if path in _CHOICES and set(base.value) != set(later.value):
        return later
    merged = dict(base.value)
    for key, value in later.value.items():
        merged[key] = _merge(merged[key], value, (*path, key)) if key in merged else value
    return replace(later, value=merged)


def _override(root: SourceNode, argument: str, number: int, diagnostics: Diagnostics) -> SourceNode:
    steps, at = _parse_path(argument, number)
    start = SourceLocation(COMMAND_LINE, number, at + 2)
    return _assigned(root, steps, load_text(argument[at + 1 :], start, diagnostics))


def _override_by_key(root: SourceNode, key: Any, value: Any, values: PythonValues) -> SourceNode:
    """Return `root` with a plain value at a dotted key."""
    try:
        steps, end = _parse_path(f"{key}=", 1)
    except UserError:
        steps, end = [], -1
    if end != len(str(key)):
        raise UserError(
            Diagnostic(
                "not a dotted key",
                values.place((str(key),)),
                "key.key[index].key",
                hint="such as train.epochs or network.layers[0].Convolution.num_filter",
            )
        )
    path = tuple(step for step, _ in steps)
    placed = [(step, values.place(path[: depth + 1])) for depth, step in enumerate(path)]
    return _assigned(root, placed, values.tree(value, path))


def _assigned(
    root: SourceNode, steps: Sequence[tuple[str | int, SourceLocation]], value: SourceNode
) -> SourceNode:
    """Return `root` with the value of an override at `steps`."""
    if steps[0][0] == "extends":
        hint = "write it in the config file"
        raise UserError(Diagnostic("extends cannot be overridden", steps[0][1], hint=hint))
    return _assign(root, steps, value, ())


def _parse_path(argument: str, number: int) -> tuple[list[tuple[str | int, SourceLocation]], int]:
    """Return the steps of `a.b[0].c=value`, each with its place, and the offset of the `=`."""
    steps: list[tuple[str | int, SourceLocation]] = []
    at = 0
    while at < len(argument) and argument[at] != "=":
        match = _STEP.match(argument, at)
        starts_well = match is not None and (match["index"] is None) == (
            bool(match["dot"]) != (at == 0)
        )
        if match is None or not starts_well or len(match["index"] or "") > 9:
            break
        place = SourceLocation(COMMAND_LINE, number, at + 1 + len(match["dot"]))
        name = match["word"] if match["quoted"] is None else match["quoted"]
        steps.append((name if match["index"] is None else int(match["index"]), place))
        at = match.end()
    if not steps or at == len(argument) or argument[at] != "=":
        problem = Diagnostic(
            "not an override",
            SourceLocation(COMMAND_LINE, number, at + 1),
            "key.key[index].key=value",
            repr(argument[:100]),
            hint="such as train.epochs=3 or network.layers[0].Convolution.num_filter=8",
        )
        raise UserError(problem)
    return steps, at


def _assign(
    node: SourceNode,
    steps: Sequence[tuple[str | int, SourceLocation]],
    value: SourceNode,
    path: KeyPath,
) -> SourceNode:
    """Return `node` with `value` at `steps`; missing mappings on the way are created."""
    if is_layers(path) and isinstance(node.value, tuple) and _is_edit(steps, value):
        return _with_edit(node, steps, value, path)
    if not steps:
        return replace(value, key_place=node.key_place)
    (step, place), *rest = steps
    where = dotted(path) or "the config"
    inner = (*path, step)
    if isinstance(step, int):
        items = node.value
        if not isinstance(items, tuple) or step >= len(items):
            got = f"{len(items)} items" if isinstance(items, tuple) else describe_value(node.value)
            problem = f"{where} has no item {step}"
            raise UserError(Diagnostic(problem, place, "an index, counted from 0", got))
        changed = _assign(items[step], rest, value, inner)
        return replace(node, value=(*items[:step], changed, *items[step + 1 :]))
    entries = {} if node.value is None else node.value
    if not isinstance(entries, Mapping):
        hint = f"write an index: {dotted((*path, 0))}" if isinstance(entries, tuple) else ""
        if is_layers(path) and hint:
            hint += f", or an edit of a layer by name: {', '.join(EDITS)}"
        problem = f"{where} has no key {step!r}"
        raise UserError(
            Diagnostic(problem, place, "a mapping", describe_value(node.value), hint=hint)
        )
    child = entries.get(step, SourceNode(None, place, place))
    changed = replace(_assign(child, rest, value, inner), key_place=place)
    return replace(node, value={**entries, step: changed})


def _is_edit(steps: Sequence[tuple[str | int, SourceLocation]], value: SourceNode) -> bool:
    """Return whether an override of a list of layers edits it: `.change.fc1=...`, `={...}`."""
    return steps[0][0] in EDITS if steps else isinstance(value.value, Mapping)


def _with_edit(
    layers: SourceNode,
    steps: Sequence[tuple[str | int, SourceLocation]],
    value: SourceNode,
    path: KeyPath,
) -> SourceNode:
    """Return a list of layers with an override added to the edits by earlier overrides."""
    edits, place = edits_of(layers), steps[0][1] if steps else value.place
    is_own = bool(edits) and edits[-1].place.file == place.file
    own = edits[-1] if is_own else SourceNode({}, place)
    merged = _assign(own, steps, value, path) if steps else _merge(own, value, path)
    return with_edits(layers, *(edits[:-1] if is_own else edits), merged)
