"""Validated config of a run: its options, and the network beside them."""

from __future__ import annotations

import hashlib
import os.path
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mxrun.base.errors import Diagnostic, SourceLocation, UserError
from mxrun.base.validation import Path as KeyPath
from mxrun.base.validation import dotted
from mxrun.config.context import Device, split_contexts
from mxrun.config.data import Data, DatasetSection
from mxrun.config.dump import dump
from mxrun.config.interpolate import depth_of
from mxrun.config.load import DEEPEST, LARGEST_FILE, MAX_VALUES
from mxrun.config.marked import REQUIRED, SourceNode, located
from mxrun.config.memory import MemorySection
from mxrun.config.schema import Execution, Networked
from mxrun.config.section import NoEffect, paths_without_effect
from mxrun.config.training import Train

if TYPE_CHECKING:
    from typing_extensions import Self

# End of the name of a tokenizer's file.
TOKENIZER = ".json"
_INFERENCE = ("network", "precision", "data")


class RunOptions(Execution):
    """Validated options of a run, whatever its model, and the text of the config that has them.

    Equality compares the contents and ignores source locations.
    """

    data: Data = Field(
        description="The data of training and evaluation.",
        examples=[{"batch_size": 64, "train": {"dataset": "digits"}}],
    )
    train: Train = Field(
        description="The training: its length, optimizer, metrics and checkpoints.",
        examples=[{"epochs": 20, "optimizer": {"sgd": {"lr": 0.1}}}],
    )
    memory: Annotated[MemorySection, NoEffect()] = Field(
        default=MemorySection(),
        description="The memory that a run may use.",
        examples=[{"budget": "512 MiB"}],
    )

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
        return tuple(missing_value(path, self._tree) for path in unfilled_paths(self._tree, ()))

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

    def with_data(self, sections: Mapping[str, Mapping[str, object]]) -> Self:
        """Return the config with other data sections: valid ones, as plain values by role.

        A new section has the place of the one that it replaces.
        """
        tree, found = self._tree, {}
        for role, section in sections.items():
            node = located(section, tree.find("data", role).place)
            found[role] = DatasetSection.model_validate(dataset_inputs(node, {**section}))
            tree = put(tree, ("data", role), node)
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
        tree = put(_without(self._tree, ("context",)), ("context",), kind)
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


class RunConfig(RunOptions, Networked):
    """Config of a run."""

    @classmethod
    def of(cls, inputs: object, tree: SourceNode) -> RunConfig:
        """Validate the inputs of the models; raises ValidationError. tree: with their locations."""
        config = cls.model_validate(inputs)
        config._tree = tree
        return config

    @property
    def options(self) -> RunOptions:
        """The options without the network."""
        values = {name: getattr(self, name) for name in RunOptions.model_fields}
        options = RunOptions.model_construct(**values)
        options._tree = self._tree
        return options


# Data sets are identified by the checksums of their records, wherever these are.
_WITHOUT_EFFECT: tuple[KeyPath, ...] = (
    ("data", "train", "path"),
    ("data", "eval", "path"),
    *paths_without_effect(RunOptions),
)


def _without_folders(tree: SourceNode) -> SourceNode:
    """Return the tree without the folders of tokenizers' files, whose content counts."""
    for part in ("train", "eval"):
        tree = changed(tree, ("data", part, "tokens"), _without_folder)
    return tree


def _without_folder(tokens: SourceNode) -> SourceNode:
    """Return the path of a tokenizer's file without its folder."""
    is_file = isinstance(tokens.value, str) and tokens.value.endswith(TOKENIZER)
    return replace(tokens, value=os.path.basename(str(tokens.value))) if is_file else tokens


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


def changed(
    node: SourceNode, path: KeyPath, change: Callable[[SourceNode], SourceNode]
) -> SourceNode:
    """Return the tree with `change` applied to the value at `path`, if it exists."""
    if not path:
        return change(node)
    step = str(path[0])
    if not isinstance(node.value, Mapping) or step not in node.value:
        return node
    return replace(node, value={**node.value, step: changed(node.value[step], path[1:], change)})


def put(node: SourceNode, path: KeyPath, value: SourceNode) -> SourceNode:
    """Return the tree with `value` at `path`; missing mappings on the way are created.

    A parent of another kind stays as it is, because validation rejects it.
    """
    if not path:
        return replace(value, key_place=node.key_place)
    if not isinstance(node.value, Mapping):
        return node
    step = str(path[0])
    inner = node.value.get(step, SourceNode({}, node.place))
    return replace(node, value={**node.value, step: put(inner, path[1:], value)})


def _without(node: SourceNode, path: KeyPath) -> SourceNode:
    """Return the tree without the key at `path`."""

    def remove(section: SourceNode) -> SourceNode:
        if not isinstance(section.value, Mapping):
            return section
        kept = {key: part for key, part in section.value.items() if key != path[-1]}
        return replace(section, value=kept)

    return changed(node, path[:-1], remove)


def dataset_inputs(marked: SourceNode, plain: dict[str, Any]) -> dict[str, Any]:
    assert isinstance(marked.value, Mapping)
    known = {key: plain[key] for key in plain if key in DatasetSection.OWN_KEYS}
    transforms = marked.find("transforms").value
    if "transforms" in known and isinstance(transforms, tuple):
        known["transforms"] = transforms
    free = {key: part for key, part in marked.value.items() if key not in DatasetSection.OWN_KEYS}
    return {**known, "options": free}


def unfilled_paths(node: SourceNode, path: KeyPath) -> list[KeyPath]:
    """Return the paths of the values that are still `???`."""
    if node.is_placeholder:
        return [path]
    if isinstance(node.value, Mapping):
        parts: Iterable[tuple[str | int, SourceNode]] = node.value.items()
    else:
        parts = enumerate(node.value) if isinstance(node.value, tuple) else ()
    return [found for key, part in parts for found in unfilled_paths(part, (*path, key))]


def missing_value(path: KeyPath, tree: SourceNode) -> Diagnostic:
    found = tree.find(*path)
    what = str(found.value)[len(REQUIRED) :].strip() or "a value"
    hint = f"give it on the command line: {dotted(path)}=VALUE"
    return Diagnostic(f"{dotted(path)} must be given", found.place, what, "???", hint=hint)
