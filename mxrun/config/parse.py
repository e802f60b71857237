"""Parsing of a config file to a RunConfig, reporting all problems in one pass."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import ValidationError

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import PYTHON, Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.validation import Path as KeyPath
from mxrun.config.context import DEFAULT_CONTEXT, Device, split_contexts
from mxrun.config.data import Data
from mxrun.config.expand import Expanded, expand
from mxrun.config.layers import LayerConfig
from mxrun.config.marked import SourceNode, located
from mxrun.config.recurrent import read_layers
from mxrun.config.run_config import (
    TOKENIZER,
    RunConfig,
    changed,
    dataset_inputs,
    missing_value,
    put,
    unfilled_paths,
)
from mxrun.config.schema import NetworkSection, are_plugins
from mxrun.config.section import Section
from mxrun.config.sources import PATHLESS, Overrides, read_sources
from mxrun.config.training import Train
from mxrun.config.translate import translate

S = TypeVar("S", bound=Section)

# Name of a config given as plain values.
_NAME = "model"
_TRAIN_CHOICES = ("optimizer", "schedule", "initializer", "metrics")


@dataclass(frozen=True)
class Parsed:
    """Result of parsing a config: `config` is set if there are no problems.

    `layers` holds every well-formed layer, so that operators can be checked in the same pass.
    `network`, `data` and `train` are set if those sections are valid. `blocks` gives the place of
    each block's definition: a block hides an operator of the same name. `unknown`: see
    `Diagnostics`. removed: the place of the edit that removed each layer or block, by full name.
    """

    config: RunConfig | None
    diagnostics: tuple[Diagnostic, ...]
    tree: SourceNode
    layers: tuple[LayerConfig, ...] = ()
    network: NetworkSection | None = None
    data: Data | None = None
    train: Train | None = None
    blocks: Mapping[str, SourceLocation] = field(default_factory=dict)
    expanded: Expanded | None = field(default=None, repr=False)
    expansion_problems: tuple[Diagnostic, ...] = ()
    unknown: frozenset[SourceLocation] = frozenset()
    removed: Mapping[str, SourceLocation] = field(default_factory=dict)

    def with_values(self, values: Mapping[KeyPath, Any]) -> Parsed:
        """Return the config with these plain values instead of its own, validated again.

        Paths are outside of `network`. A new value has the place of the value it replaces, or of
        the deepest existing value on the way. A config that cannot be read is returned as it is.
        """
        if self.expanded is None:
            return self
        root = self.expanded.root
        for path, value in values.items():
            root = put(root, path, located(value, root.find(*path).place))
        diagnostics = Diagnostics(self.expansion_problems, self.unknown)
        return _validate(replace(self.expanded, root=root), diagnostics)

    def with_evaluation(self, section: SourceNode) -> Parsed:
        """Return the config with `section` as its `data.eval`, validated again.

        A config that cannot be read is returned as it is.
        """
        if self.expanded is None:
            return self
        root = put(self.expanded.root, ("data", "eval"), section)
        diagnostics = Diagnostics(self.expansion_problems, self.unknown)
        return _validate(replace(self.expanded, root=root), diagnostics)

    @property
    def plugins(self) -> Mapping[str, SourceLocation]:
        """Places of the plugin files by name, if the list is valid, whatever is wrong elsewhere."""
        listed = self.tree.find("plugins").value
        if not isinstance(listed, tuple) or not are_plugins([file.value for file in listed]):
            return {}
        return {str(file.value): file.place for file in listed}

    @property
    def devices(self) -> tuple[Device, ...]:
        """Kinds and numbers of the config's devices; () if `context` is invalid."""
        is_given = isinstance(self.tree.value, Mapping) and "context" in self.tree.value
        return split_contexts(self.tree.find("context").plain() if is_given else DEFAULT_CONTEXT)

    def with_problem(self, problem: Diagnostic) -> Parsed:
        """Return the config as one with another problem."""
        return replace(
            self,
            config=None,
            diagnostics=_ordered([*self.diagnostics, problem]),
            expansion_problems=(*self.expansion_problems, problem),
        )

    def place(self, *path: str | int) -> SourceLocation:
        """Return the place of the value at `path`, or of the deepest existing value on the way."""
        return self.tree.find(*path).place

    def key_place(self, *path: str | int) -> SourceLocation:
        """Return the place of the key at `path`, or of the deepest existing key on the way."""
        return self.tree.find(*path).start


ConfigSource: TypeAlias = str | PathLike[str] | Mapping[str, Any]
"""Path of a config file, or the config itself as plain values."""


def load_config(path: str | PathLike[str], overrides: Sequence[str] = ()) -> RunConfig:
    """Read, expand and validate a config file; `overrides` are `key.key=value`.

    Values still `???` are reported in `RunConfig.missing`. Raises UserError with every diagnostic.
    """
    parsed = parse(path, overrides)
    if parsed.config is None:
        raise UserError(parsed.diagnostics)
    return parsed.config


def parse(source: ConfigSource, overrides: Overrides = ()) -> Parsed:
    """Parse like `load_config`, but return the problems and the valid parts, never raise.

    A config given as plain values is called `model` unless it has a name.
    """
    diagnostics = Diagnostics()
    origin = source if isinstance(source, Mapping) else Path(source)
    name, shown = (origin.stem, str(source)) if isinstance(origin, Path) else (_NAME, PYTHON)
    try:
        merged = read_sources(origin, overrides, diagnostics)
        expanded = expand(_named(merged.root, name), diagnostics)
        expanded = replace(expanded, root=_located(expanded.root), files=merged.files)
    except UserError as error:
        nothing = SourceNode(None, SourceLocation(shown, 1, 1))
        return Parsed(None, _ordered([*diagnostics, *error.diagnostics]), nothing)
    return _validate(expanded, diagnostics)


def _named(tree: SourceNode, name: str) -> SourceNode:
    """Return the tree with a name as its first key, by default `name`."""
    assert isinstance(tree.value, Mapping)
    found = tree.value.get("name", SourceNode(name, tree.place))
    return replace(tree, value={"name": found, **tree.value})


def _located(tree: SourceNode) -> SourceNode:
    """Return the tree with absolute paths, so that a saved config finds the same files.

    Paths in a file are relative to its folder, those on the command line to the working folder.
    """
    for part in ("train", "eval"):
        tree = changed(tree, ("data", part, "path"), _absolute)
        tree = changed(tree, ("data", part, "path"), _all_absolute)
        tree = changed(tree, ("data", part, "tokens"), _absolute_tokenizer)
    return changed(tree, ("plugins",), _all_absolute)


def _absolute(path: SourceNode) -> SourceNode:
    if not isinstance(path.value, str) or not path.value or path.is_placeholder:
        return path
    folder = "" if path.place.file in PATHLESS else os.path.dirname(path.place.file)
    return replace(path, value=os.path.abspath(os.path.join(folder, path.value)))


def _absolute_tokenizer(tokens: SourceNode) -> SourceNode:
    """Return the path of a tokenizer's file as an absolute one; the name of tokens as it is."""
    return _absolute(tokens) if str(tokens.value).endswith(TOKENIZER) else tokens


def _all_absolute(paths: SourceNode) -> SourceNode:
    if not isinstance(paths.value, tuple):
        return paths
    return replace(paths, value=tuple(map(_absolute, paths.value)))


def _validate(expanded: Expanded, diagnostics: Diagnostics) -> Parsed:
    tree, expansion_problems = expanded.root, tuple(diagnostics)
    layers = read_layers(expanded.layers, expanded.chains, diagnostics)
    well_formed = not diagnostics
    unfilled = unfilled_paths(tree, ())
    reported: list[KeyPath] = [] if well_formed or layers else [("network", "layers")]
    inputs = _inputs(tree, layers)
    config: RunConfig | None = None
    try:
        config = RunConfig.of(inputs, tree)
    except ValidationError as error:
        diagnostics += [missing_value(path, tree) for path in unfilled if _is_needed(path, error)]
        diagnostics += translate(error, tree, RunConfig, without=[*unfilled, *reported])
    else:
        diagnostics += [missing_value(path, tree) for path in unfilled if path[0] == "network"]
    return Parsed(
        config=None if diagnostics else config,
        diagnostics=_ordered(diagnostics),
        tree=tree,
        layers=layers,
        network=_section(NetworkSection, inputs.get("network")) if well_formed else None,
        data=_section(Data, inputs.get("data")),
        train=_section(Train, inputs.get("train")),
        blocks=expanded.blocks,
        expanded=expanded,
        expansion_problems=expansion_problems,
        unknown=frozenset(diagnostics.unknown),
        removed=expanded.removed,
    )


def _section(model: type[S], inputs: Any) -> S | None:
    """Validate a section for further checks; invalid keys are omitted or replaced by stand-ins."""
    try:
        return model.model_validate(inputs)
    except ValidationError as error:
        if not isinstance(inputs, dict):
            return None
        wrong = {details["loc"][0] for details in error.errors() if details["loc"]}
    right = {key: value for key, value in inputs.items() if key not in wrong}
    try:
        return model.model_validate({**model.stand_ins, **right})
    except ValidationError:
        return None


def _is_needed(path: KeyPath, error: ValidationError) -> bool:
    """Return whether a value still to be given is required to make a RunConfig."""
    return path[0] == "network" or any(details["loc"] == path for details in error.errors())


def _inputs(tree: SourceNode, layers: tuple[LayerConfig, ...]) -> dict[str, Any]:
    """Return the input of the models: plain values, but layers and data set options with places."""
    inputs: dict[str, Any] = _filled(tree)
    network, data = inputs.get("network"), inputs.get("data")
    if isinstance(network, dict) and isinstance(network.get("layers"), tuple):
        network["layers"] = layers
    variables = network.get("variables") if isinstance(network, dict) else None
    for name, variable in variables.items() if isinstance(variables, dict) else ():
        _keep_marked(variable, tree.find("network", "variables", name), ("init",))
    _keep_marked(inputs.get("train"), tree.find("train"), _TRAIN_CHOICES)
    if isinstance(data, dict):
        for part in ("train", "eval"):
            if isinstance(data.get(part), dict):
                data[part] = dataset_inputs(tree.find("data", part), data[part])
    return inputs


def _keep_marked(plain: Any, marked: SourceNode, keys: Sequence[str]) -> None:
    """Replace the plain values of `keys` by the marked ones."""
    for key in keys:
        if isinstance(plain, dict) and isinstance(marked.value, Mapping) and key in plain:
            part = marked.value[key]
            if part.value is not None:
                plain[key] = part.value if isinstance(part.value, tuple) else part


def _filled(node: SourceNode) -> Any:
    """Return the plain value of `node` without keys whose values are still to be given."""
    if isinstance(node.value, Mapping):
        return {key: _filled(part) for key, part in node.value.items() if not part.is_placeholder}
    return node.plain()


def _ordered(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the problems without duplicates, as repeats produce, in the order of the files."""
    first: dict[tuple[SourceLocation | None, str], Diagnostic] = {}
    for problem in diagnostics:
        first.setdefault((problem.place, problem.problem), problem)
    return tuple(sorted(first.values(), key=_position))


def _position(problem: Diagnostic) -> tuple[str, int, int]:
    place = problem.place or SourceLocation("", 0, 0)
    return place.file, place.line, place.column
