"""Parsing of a config file to a RunConfig, reporting all problems in one pass."""

from __future__ import annotations

import hashlib
import os.path
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import ValidationError

from mxrun.base.errors import PYTHON, Diagnostic, Diagnostics, SourceLocation, UserError
from mxrun.base.validation import Path as KeyPath
from mxrun.base.validation import dotted
from mxrun.config.context import DEFAULT_CONTEXT, Device, split_contexts
from mxrun.config.data import Data, DatasetSection
from mxrun.config.dump import dump
from mxrun.config.expand import Expanded, expand
from mxrun.config.interpolate import depth_of
from mxrun.config.layers import LayerConfig
from mxrun.config.load import DEEPEST, LARGEST_FILE, MAX_VALUES
from mxrun.config.marked import REQUIRED, SourceNode, located
from mxrun.config.recurrent import read_layers
from mxrun.config.schema import NetworkSection, Settings, are_plugins
from mxrun.config.section import Section, paths_without_effect
from mxrun.config.sources import PATHLESS, Overrides, read_sources
from mxrun.config.training import Train
from mxrun.config.translate import translate

S = TypeVar("S", bound=Section)

# Data sets are identified by the checksums of their records, wherever these are.
_WITHOUT_EFFECT: tuple[KeyPath, ...] = (
    ("data", "train", "path"),
    ("data", "eval", "path"),
    *paths_without_effect(Settings),
)
# Name of a config given as plain values.
_NAME = "model"
# End of the name of a tokenizer's file.
_TOKENIZER = ".json"
_INFERENCE = ("network", "precision", "data")
_TRAIN_CHOICES = ("optimizer", "schedule", "initializer", "metrics")


class RunConfig(Settings):
    """Validated config with the source locations of its keys and values.

    Equality compares the contents and ignores source locations.
    """

    _tree: SourceNode

    @property
    def device(self) -> Device:
        """Kind of the first device, and its number among those of its kind."""
        return self.devices[0]

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices that train together, one or more, all of one kind."""
        return split_contexts(self.context)

    @property
    def missing(self) -> tuple[Diagnostic, ...]:
        """Diagnostics for the values that are still `???` and must be given for training."""
        return tuple(_missing(path, self._tree) for path in _unfilled(self._tree, ()))

    def place(self, *path: str | int) -> SourceLocation:
        """Return the place of the value at `path`, or of the deepest existing value on the way."""
        return self._tree.find(*path).place

    def key_place(self, *path: str | int) -> SourceLocation:
        """Return the place of the key at `path`, or of the deepest existing key on the way."""
        return self._tree.find(*path).start

    def plain(self) -> dict[str, Any]:
        """Return the expanded config as plain values; loading them gives an equal config."""
        values = _escaped(self._tree).plain()
        assert isinstance(values, dict)
        return values

    def with_data(self, sections: Mapping[str, Mapping[str, object]]) -> RunConfig:
        """Return the config with other data sections: valid ones, as plain values by role.

        A new section has the place of the one that it replaces.
        """
        tree, found = self._tree, {}
        for role, section in sections.items():
            node = located(section, tree.find("data", role).place)
            found[role] = DatasetSection.model_validate(_dataset(node, {**section}))
            tree = _put(tree, ("data", role), node)
        changed = self.model_copy(update={"data": self.data.model_copy(update=found)})
        changed._tree = tree
        return changed

    def resolved(self) -> str:
        """Return the expanded config as YAML text; reading it gives an equal config.

        Raises UserError if it exceeds the limits for reading.
        """
        text = dump(self._tree)
        sizes = {
            "bytes": (len(text), LARGEST_FILE),
            "keys and values": (_entries(self._tree), MAX_VALUES),
            "levels": (depth_of(self._tree), DEEPEST),
        }
        beyond = {what: both for what, both in sizes.items() if both[0] > both[1]}
        if beyond:
            raise UserError(
                Diagnostic(
                    f"the expanded config has too many {what} to be saved",
                    self._tree.place,
                    f"at most {most}",
                    str(found),
                )
                for what, (found, most) in beyond.items()
            )
        return text

    def identity(self, without: Iterable[KeyPath] = ()) -> str:
        """Return the resolved text without the keys that do not change results.

        These are the paths of its data, the keys marked `NoEffect` in their sections, and the keys
        of `without`. Of the contexts only the kind remains: parts
        of a batch and sums are in the order of the list, whatever its numbers, and how many they
        are belongs to the plan.
        """
        kind = SourceNode(self.device[0], self.place("context"))
        tree = _put(_without(self._tree, ("context",)), ("context",), kind)
        for path in (*_WITHOUT_EFFECT, *without):
            tree = _without(tree, path)
        return dump(_without_folders(tree))

    def sha256(self, without: Iterable[KeyPath] = ()) -> str:
        """Return the SHA-256 of the identity, in hexadecimal digits."""
        return hashlib.sha256(self.identity(without).encode()).hexdigest()

    def inference_sha256(self) -> str:
        """Return the SHA-256 of the part of the identity that affects inference.

        This is the network, its precision and the treatment of records, but not the training.
        """
        tree = self._tree
        for path in (*_WITHOUT_EFFECT, ("data", "batch_size")):
            tree = _without(tree, path)
        tree = _without_folders(tree)
        assert isinstance(tree.value, Mapping)
        kept = {key: part for key, part in tree.value.items() if key in _INFERENCE}
        return hashlib.sha256(dump(replace(tree, value=kept)).encode()).hexdigest()


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
            root = _put(root, path, located(value, root.find(*path).place))
        diagnostics = Diagnostics(self.expansion_problems, self.unknown)
        return _validate(replace(self.expanded, root=root), diagnostics)

    def with_evaluation(self, section: SourceNode) -> Parsed:
        """Return the config with `section` as its `data.eval`, validated again.

        A config that cannot be read is returned as it is.
        """
        if self.expanded is None:
            return self
        root = _put(self.expanded.root, ("data", "eval"), section)
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
        tree = _changed(tree, ("data", part, "path"), _absolute)
        tree = _changed(tree, ("data", part, "path"), _all_absolute)
        tree = _changed(tree, ("data", part, "tokens"), _absolute_tokenizer)
    return _changed(tree, ("plugins",), _all_absolute)


def _without_folders(tree: SourceNode) -> SourceNode:
    """Return the tree without the folders of tokenizers' files, whose content counts."""
    for part in ("train", "eval"):
        tree = _changed(tree, ("data", part, "tokens"), _without_folder)
    return tree


def _escaped(node: SourceNode) -> SourceNode:
    """Return the tree with texts in which nothing is interpolated again."""
    value = node.value
    if isinstance(value, Mapping):
        return replace(node, value={key: _escaped(part) for key, part in value.items()})
    if isinstance(value, tuple):
        return replace(node, value=tuple(map(_escaped, value)))
    return replace(node, value=value.replace("${", "$${")) if isinstance(value, str) else node


def _entries(node: SourceNode) -> int:
    """Return the number of keys and values in a value, including itself."""
    if isinstance(node.value, Mapping):
        return 1 + sum(1 + _entries(part) for part in node.value.values())
    if isinstance(node.value, tuple):
        return 1 + sum(map(_entries, node.value))
    return 1


def _changed(
    node: SourceNode, path: KeyPath, change: Callable[[SourceNode], SourceNode]
) -> SourceNode:
    """Return the tree with `change` applied to the value at `path`, if it exists."""
    if not path:
        return change(node)
    step = str(path[0])
    if not isinstance(node.value, Mapping) or step not in node.value:
        return node
    return replace(node, value={**node.value, step: _changed(node.value[step], path[1:], change)})


def _put(node: SourceNode, path: KeyPath, value: SourceNode) -> SourceNode:
    """Return the tree with `value` at `path`; missing mappings on the way are created.

    A parent of another kind stays as it is, because validation rejects it.
    """
    if not path:
        return replace(value, key_place=node.key_place)
    if not isinstance(node.value, Mapping):
        return node
    step = str(path[0])
    inner = node.value.get(step, SourceNode({}, node.place))
    return replace(node, value={**node.value, step: _put(inner, path[1:], value)})


def _without(node: SourceNode, path: KeyPath) -> SourceNode:
    """Return the tree without the key at `path`."""

    def remove(section: SourceNode) -> SourceNode:
        if not isinstance(section.value, Mapping):
            return section
        kept = {key: part for key, part in section.value.items() if key != path[-1]}
        return replace(section, value=kept)

    return _changed(node, path[:-1], remove)


def _absolute(path: SourceNode) -> SourceNode:
    if not isinstance(path.value, str) or not path.value or path.is_placeholder:
        return path
    folder = "" if path.place.file in PATHLESS else os.path.dirname(path.place.file)
    return replace(path, value=os.path.abspath(os.path.join(folder, path.value)))


def _absolute_tokenizer(tokens: SourceNode) -> SourceNode:
    """Return the path of a tokenizer's file as an absolute one; the name of tokens as it is."""
    return _absolute(tokens) if str(tokens.value).endswith(_TOKENIZER) else tokens


def _without_folder(tokens: SourceNode) -> SourceNode:
    """Return the path of a tokenizer's file without its folder."""
    is_file = isinstance(tokens.value, str) and tokens.value.endswith(_TOKENIZER)
    return replace(tokens, value=os.path.basename(str(tokens.value))) if is_file else tokens


def _all_absolute(paths: SourceNode) -> SourceNode:
    if not isinstance(paths.value, tuple):
        return paths
    return replace(paths, value=tuple(map(_absolute, paths.value)))


def _validate(expanded: Expanded, diagnostics: Diagnostics) -> Parsed:
    tree, expansion_problems = expanded.root, tuple(diagnostics)
    layers = read_layers(expanded.layers, expanded.chains, diagnostics)
    well_formed = not diagnostics
    unfilled = _unfilled(tree, ())
    reported: list[KeyPath] = [] if well_formed or layers else [("network", "layers")]
    inputs = _inputs(tree, layers)
    config: RunConfig | None = None
    try:
        config = RunConfig.model_validate(inputs)
    except ValidationError as error:
        diagnostics += [_missing(path, tree) for path in unfilled if _is_needed(path, error)]
        diagnostics += translate(error, tree, RunConfig, without=[*unfilled, *reported])
    else:
        diagnostics += [_missing(path, tree) for path in unfilled if path[0] == "network"]
        config._tree = tree
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
                data[part] = _dataset(tree.find("data", part), data[part])
    return inputs


def _keep_marked(plain: Any, marked: SourceNode, keys: Sequence[str]) -> None:
    """Replace the plain values of `keys` by the marked ones."""
    for key in keys:
        if isinstance(plain, dict) and isinstance(marked.value, Mapping) and key in plain:
            part = marked.value[key]
            if part.value is not None:
                plain[key] = part.value if isinstance(part.value, tuple) else part


def _dataset(marked: SourceNode, plain: dict[str, Any]) -> dict[str, Any]:
    assert isinstance(marked.value, Mapping)
    known = {key: plain[key] for key in plain if key in DatasetSection.OWN_KEYS}
    transforms = marked.find("transforms").value
    if "transforms" in known and isinstance(transforms, tuple):
        known["transforms"] = transforms
    free = {key: part for key, part in marked.value.items() if key not in DatasetSection.OWN_KEYS}
    return {**known, "options": free}


def _filled(node: SourceNode) -> Any:
    """Return the plain value of `node` without keys whose values are still to be given."""
    if isinstance(node.value, Mapping):
        return {key: _filled(part) for key, part in node.value.items() if not part.is_placeholder}
    return node.plain()


def _unfilled(node: SourceNode, path: KeyPath) -> list[KeyPath]:
    """Return the paths of the values that are still `???`."""
    if node.is_placeholder:
        return [path]
    if isinstance(node.value, Mapping):
        parts: Iterable[tuple[str | int, SourceNode]] = node.value.items()
    else:
        parts = enumerate(node.value) if isinstance(node.value, tuple) else ()
    return [found for key, part in parts for found in _unfilled(part, (*path, key))]


def _missing(path: KeyPath, tree: SourceNode) -> Diagnostic:
    found = tree.find(*path)
    what = str(found.value)[len(REQUIRED) :].strip() or "a value"
    hint = f"give it on the command line: {dotted(path)}=VALUE"
    return Diagnostic(f"{dotted(path)} must be given", found.place, what, "???", hint)


def _ordered(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return the problems without duplicates, as repeats produce, in the order of the files."""
    first: dict[tuple[SourceLocation | None, str], Diagnostic] = {}
    for problem in diagnostics:
        first.setdefault((problem.place, problem.problem), problem)
    return tuple(sorted(first.values(), key=_position))


def _position(problem: Diagnostic) -> tuple[str, int, int]:
    place = problem.place or SourceLocation("", 0, 0)
    return place.file, place.line, place.column
