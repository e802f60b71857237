"""Reference of everything that a config may contain, from the models that validate it.

The texts, types, defaults and examples are those of the sections' keys and of the registered
optimizers, schedules, initializers, metrics, transforms, data sets and operators.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from mxrun.base.dataclass import dataclass
from mxrun.base.description import describe_field, flow
from mxrun.base.docstrings import docstring
from mxrun.base.errors import SourceLocation
from mxrun.base.keywords import RECURRENT, REPEAT
from mxrun.base.near_names import folded
from mxrun.base.params import check
from mxrun.base.registry import Registry
from mxrun.base.validation import annotation_at
from mxrun.config.choice import Choice
from mxrun.config.data import DatasetSection, SplitSection
from mxrun.config.dump import dump
from mxrun.config.file_keys import (
    FileKeys,
    LayerEditKeys,
    LayerKeys,
    RecurrentKeys,
    RepeatKeys,
)
from mxrun.config.marked import located
from mxrun.config.run_config import RunConfig
from mxrun.config.section import Section
from mxrun.io.dataset.registry import DATASETS, DatasetFormat
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.operator.optimizer import OPTIMIZERS
from mxrun.operator.optimizer_property import OptimizerProperty
from mxrun.operator.register import OPERATORS
from mxrun.train.initializer import INITIALIZERS
from mxrun.train.metric_kind import METRICS
from mxrun.train.schedule import SCHEDULES

EntryKind = Literal["config", "section", "key", "choice", "kind", "operator"]
KeyPath = tuple[str, ...]
# Function from the value of a key to the part of a config that sets it.
Wrap = Callable[[Any], dict[str, Any]]

# Name of a key that the user chooses, in paths.
PLACEHOLDER = "NAME"
# Bundled config whose layers the examples of edits name.
_EXTENDED = "digits_lenet"
# Data section to which the examples of transforms belong: large images in colour.
_PHOTOS = {"dataset": "image_folder", "path": "photos"}
_EXAMPLE_PLACE = SourceLocation("<example>", 1, 1)
# Examples fit into a terminal of 80 columns, indented.
_EXAMPLE_WIDTH = 76
_DEFAULT = re.compile(r"; default: (?P<words>.*?)\.?$")

_OPTIMIZER, _SCHEDULE = ("train", "optimizer"), ("train", "schedule")
_INITIALIZER, _METRICS = ("train", "initializer"), ("train", "metrics")
_DATASET, _TRANSFORMS = ("data", "train", "dataset"), ("data", "train", "transforms")
LAYERS: KeyPath = ("network", "layers")
# Keys whose values are kinds of a registry.
CHOICES: Mapping[KeyPath, Registry[Any]] = {
    _DATASET: DATASETS,
    _TRANSFORMS: TRANSFORMS,
    _OPTIMIZER: OPTIMIZERS,
    _SCHEDULE: SCHEDULES,
    _INITIALIZER: INITIALIZERS,
    _METRICS: METRICS,
}
# Sections and choices that are explained at another path.
_REST = ("data", "eval", "split", "rest")
_SAME: Mapping[KeyPath, KeyPath] = {
    ("data", "eval"): ("data", "train"),
    _REST: _REST,
    ("network", "variables", PLACEHOLDER, "init"): _INITIALIZER,
}


@dataclass(frozen=True)
class ReferenceEntry:
    """Description of one part of a config.

    path: the keys that lead to it; `NAME` stands for a name that the user chooses. shared: the path
    of the entry with the same content, which is `path` itself unless the content has several
    places. accepts: type and range in words. default: the default in words, empty if the key is
    required or has none of its own. example: YAML of a part of a config. entries: the keys of a
    section or a kind, or the kinds of a choice.
    """

    path: KeyPath
    shared: KeyPath
    kind: EntryKind
    description: str
    accepts: str = ""
    is_required: bool = False
    default: str = ""
    example: str = ""
    entries: tuple[ReferenceEntry, ...] = ()

    @property
    def name(self) -> str:
        """The last key of the path."""
        return self.path[-1] if self.path else ""

    @property
    def summary(self) -> str:
        """The first sentence of the description, on one line."""
        return first_sentence(self.description)

    def walk(self) -> Iterator[ReferenceEntry]:
        """Yield the entry and all entries below it."""
        yield self
        for entry in self.entries:
            yield from entry.walk()


def first_sentence(text: str) -> str:
    """Return the text up to the first full stop before a capital letter, on one line."""
    line = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.])\s+(?=[A-Z`])", line)[0]


def config_reference() -> ReferenceEntry:
    """Return the reference of a config; its entries are the settings of a run and the sections."""
    keys = [*_keys(RunConfig, _KeyPlace()), *_keys(FileKeys, _KeyPlace())]
    keys.sort(key=lambda entry: entry.kind == "section")
    return ReferenceEntry((), (), "config", "Config of a run.", entries=tuple(keys))


@dataclass(frozen=True)
class _KeyPlace:
    """Place of the keys of a section, a kind or an operator.

    path, shared: as in ReferenceEntry. wrap: function from a mapping of the keys to the part of a
    config that contains it. complete: examples of this mapping, for keys that belong together; the
    first is also the context of other keys. required: keys without which the others are invalid,
    with example values.
    """

    path: KeyPath = ()
    shared: KeyPath = ()
    wrap: Wrap = dict
    complete: Sequence[Mapping[str, Any]] = ()
    required: Mapping[str, Any] = field(default_factory=dict)

    def example(self, name: str, value: Any) -> str:
        """Return YAML of a part of a config with the key; empty without a value for it."""
        together = next((each for each in self.complete if name in each), None)
        if together is None and value is None:
            return ""
        others = next(iter(self.complete), self.required)
        return yaml_text(self.wrap(dict(together or {**others, name: value})))

    def set(self, name: str, value: Any) -> dict[str, Any]:
        """Return a part of a config in which a key has a value."""
        return self.wrap({**self.required, name: value})

    def below(self, name: str) -> tuple[KeyPath, KeyPath]:
        """Return `path` and `shared` of a key."""
        path = (*self.path, name)
        return path, _SAME.get(path, (*self.shared, name))


def _keys(model: type[BaseModel], place: _KeyPlace) -> tuple[ReferenceEntry, ...]:
    """Return the entries of a model's keys."""
    left_out: set[tuple[type[BaseModel], str]] = {(DatasetSection, "options")}
    if place.path != _REST[:-1]:
        left_out.add((SplitSection, "rest"))
    names = [name for name in model.model_fields if (model, name) not in left_out]
    return tuple(_key(model, name, place) for name in names)


def _key(model: type[BaseModel], name: str, place: _KeyPlace) -> ReferenceEntry:
    field = model.model_fields[name]
    path, shared = place.below(name)
    if shared == _TRANSFORMS:
        place = replace(place, complete=(), required=_PHOTOS)
    entries = _below(model, name, place)
    is_section = bool(entries) and shared not in (*CHOICES, LAYERS)
    description, default = _described(field)
    value = _example(field)
    if value is None and shared[: len(LAYERS)] == LAYERS:
        value = _typical(model, name, place.required)
    return ReferenceEntry(
        path,
        shared,
        "choice" if shared in CHOICES else "section" if is_section else "key",
        description,
        describe_field(field),
        field.is_required() and not default,
        default,
        example=place.example(name, value),
        entries=entries,
    )


def _below(model: type[BaseModel], name: str, place: _KeyPlace) -> tuple[ReferenceEntry, ...]:
    """Return the entries below a key: those of a section, or the kinds of a choice."""
    field = model.model_fields[name]
    path, shared = place.below(name)
    if (registry := CHOICES.get(shared)) is not None:
        is_list = get_origin(annotation_at(model, (name,))) is tuple
        return _kinds(registry, path, shared, place, name, is_list)
    if shared == LAYERS:
        return _layers(path)
    inner = annotation_at(model, (name,))
    examples = [each for each in field.examples or () if isinstance(each, Mapping)]
    if get_origin(inner) is dict and _is_section(below := annotation_at(model, (name, ""))):
        user_name = next(iter(examples[0])) if examples else PLACEHOLDER
        wrap: Wrap = lambda keys: place.set(name, {user_name: keys})  # noqa: E731
        inside = _KeyPlace((*path, PLACEHOLDER), (*shared, PLACEHOLDER), wrap)
        return _keys(below, replace(inside, required=_required(below)))
    if not _is_section(inner):
        return ()
    inside = _KeyPlace(path, shared, partial(place.set, name), examples)
    required = _required(inner)
    if len(path) == 1 and required:
        # The required keys of the sections network, data and train are in every config.
        return _keys(inner, replace(inside, complete=()))
    return _keys(inner, replace(inside, required=required))


def _kinds(
    registry: Registry[Any],
    path: KeyPath,
    shared: KeyPath,
    place: _KeyPlace,
    name: str,
    is_list: bool,
) -> tuple[ReferenceEntry, ...]:
    """Return the entries of the kinds of a choice; `is_list`: whether the key takes several."""

    def wrap(kind: str, keys: dict[str, Any]) -> dict[str, Any]:
        if registry is DATASETS:
            return place.wrap({name: kind, **keys})
        value = {kind: keys} if keys else kind
        return place.set(name, [value] if is_list else value)

    entries = []
    for kind in registry:
        entry = registry.get(kind)
        model, documented = (
            (entry.options, entry.read) if isinstance(entry, DatasetFormat) else (entry, entry)
        )
        inside = _KeyPlace((*path, kind), (*shared, kind), partial(wrap, kind))
        entries.append(_kind(model, documented, "kind", inside))
    return tuple(entries)


def _kind(
    model: type[BaseModel], documented: Any, kind: EntryKind, place: _KeyPlace
) -> ReferenceEntry:
    """Return the entry of a kind or an operator, whose keys are the fields of `model`."""
    complete, required = _complete(model), _required(model)
    if kind == "operator":
        # Operators' examples of optional parameters make them complete.
        required = {
            key: _example(each) for key, each in model.model_fields.items() if each.examples
        }
    example = next(iter(complete), None) or required
    return ReferenceEntry(
        place.path,
        place.shared,
        kind,
        _paragraphs(documented),
        example=yaml_text(place.wrap(dict(example))),
        entries=_keys(model, replace(place, complete=complete, required=required)),
    )


def _complete(model: type[BaseModel]) -> list[Mapping[str, Any]]:
    """Return a model's own examples, of keys that belong together."""
    extra = model.model_config.get("json_schema_extra")
    given = extra.get("examples") if isinstance(extra, Mapping) else None
    return [each for each in given if isinstance(each, Mapping)] if isinstance(given, list) else []


def _layers(path: KeyPath) -> tuple[ReferenceEntry, ...]:
    """Return the entries of a layer's own keys, of `repeat`, `recurrent` and of the operators."""

    def of_layer(keys: dict[str, Any]) -> dict[str, Any]:
        if "inputs" in keys:
            return _network([{"elemwise_add": keys}])
        return _network([{"Convolution": {"num_filter": 16, "kernel": [3, 3], **keys}}])

    def of_operator(name: str, keys: dict[str, Any]) -> dict[str, Any]:
        return _network([{name: keys} if keys else name])

    operators = []
    for name in OPERATORS:
        known = OPERATORS.get(name)
        if not known.is_internal and not issubclass(known, OptimizerProperty):
            place = _KeyPlace((*path, name), (*path, name), partial(of_operator, name))
            model = known.parameter_type
            operators.append(_kind(model, known, "operator", place))

    def of_edit(edits: dict[str, Any]) -> dict[str, Any]:
        return {"extends": _EXTENDED, "network": {"layers": edits}}

    return (
        *_keys(LayerKeys, _KeyPlace(path, path, of_layer)),
        *_keys(LayerEditKeys, _KeyPlace(path, path, of_edit)),
        _layer_section(path, REPEAT, RepeatKeys),
        _layer_section(path, RECURRENT, RecurrentKeys),
        *operators,
    )


def _layer_section(path: KeyPath, key: str, model: type[Section]) -> ReferenceEntry:
    """Return the entry of a section that stands in the place of a layer."""
    own, complete = (*path, key), _complete(model)
    # Keys below one of them need a section that is complete as well.
    required = next(iter(complete), _required(model))
    place = _KeyPlace(own, own, lambda keys: _network([{key: keys}]), complete, required)
    return ReferenceEntry(
        place.path,
        place.shared,
        "section",
        _paragraphs(model),
        "mapping",
        example=yaml_text(place.wrap(dict(required))),
        entries=_keys(model, place),
    )


def _paragraphs(of: Any) -> str:
    """Return a docstring with every paragraph on one line."""
    return "\n\n".join(" ".join(each.split()) for each in docstring(of).split("\n\n"))


def _network(layers: list[Any]) -> dict[str, Any]:
    return {"network": {"layers": layers}}


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _required(model: type[BaseModel]) -> dict[str, Any]:
    """Return the required keys of a model with example values."""
    return {
        name: _example(field) for name, field in model.model_fields.items() if field.is_required()
    }


def _example(field: FieldInfo) -> Any:
    """Return the first example of a field, else one that follows from its default or its type.

    None if there is none.
    """
    if field.examples:
        return field.examples[0]
    default = None if field.is_required() else field.get_default()
    if isinstance(default, bool):
        return not default
    if isinstance(default, (int, float, str)):
        return _plain(default)
    if isinstance(default, Choice):
        return default.kind
    if isinstance(default, tuple) and default:
        return list(default)
    return None


def _typical(model: type[BaseModel], name: str, required: Mapping[str, Any]) -> Any:
    """Return a valid value of an operator's parameter that has no example; None if there is none.

    required: the required parameters, whose lists have the length that others must have.
    """
    length = next((len(each) for each in required.values() if isinstance(each, (list, tuple))), 1)
    candidates = _candidates(model.model_fields[name].annotation, length)
    return next((each for each in candidates if check(model, {**required, name: each})[0]), None)


def _candidates(annotation: Any, length: int) -> Iterator[Any]:
    """Yield values of a type; lists have `length` items."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        yield from arguments
    elif get_origin(annotation) is tuple:
        yield from ([each] * length for each in _candidates(arguments[0], length))
    elif annotation in (int, float, bool):
        yield annotation(1)
    elif arguments:
        # The first member of a union, or the type that is annotated.
        yield from _candidates(arguments[0], length)


def _described(field: FieldInfo) -> tuple[str, str]:
    """Return the description of a field without its words on the default, and the default."""
    text = " ".join((field.description or "").split())
    found = _DEFAULT.search(text)
    words = found["words"] if found else ""
    text = f"{text[: found.start()]}." if found else text
    # The name of a run is required by the model, but has a default in a config.
    if field.is_required() or words:
        return text, words
    default = field.get_default()
    if default is None:
        return text, ""
    if isinstance(default, BaseModel):
        return text, ""
    return text, default.kind if isinstance(default, Choice) else flow(_plain(default))


def _plain(value: Any) -> Any:
    """Return a default as users write it: 0 for 0.0."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    plain = isinstance(value, (bool, int, float, str, Mapping))
    return value if plain else str(value)


def find(root: ReferenceEntry, key: str) -> list[ReferenceEntry]:
    """Return the entries that a key names: all of its path or the last parts, in any spelling.

    Parts in between may be left out: `data.train.path` is the path of every data set. Of entries
    with the same content only the first is returned. If there are several, they include those of
    which only the singular or the plural is `key`.
    """
    wanted = [part for part in re.sub(r"\[[^\]]*\]", "", key).split(".") if not part.isdecimal()]
    entries = [entry for entry in root.walk() if entry.path]
    for is_same in (str.__eq__, _is_alike):
        for fits in (_is_path, _is_end, _is_within):
            found = [entry for entry in entries if fits(wanted, entry.path, is_same)]
            if len(found) > 1 and len(_distinct(found)) > 1:
                found = [entry for entry in entries if fits(wanted, entry.path, _is_alike)]
            if found:
                return _distinct(found)
    return []


Same = Callable[[str, str], bool]


def _is_alike(part: str, name: str) -> bool:
    """Return whether two names differ only in case, separators and a plural's s."""
    return folded(part).removesuffix("s") == folded(name).removesuffix("s")


def _is_path(wanted: Sequence[str], path: KeyPath, is_same: Same) -> bool:
    return len(wanted) == len(path) and _is_end(wanted, path, is_same)


def _is_end(wanted: Sequence[str], path: KeyPath, is_same: Same) -> bool:
    end = path[len(path) - len(wanted) :]
    return 0 < len(wanted) <= len(path) and all(
        is_same(part, name) or (name == PLACEHOLDER and part != wanted[-1])
        for part, name in zip(wanted, end, strict=True)
    )


def _is_within(wanted: Sequence[str], path: KeyPath, is_same: Same) -> bool:
    """Return whether the parts occur in the path in their order, the last one at its end."""
    names = iter(path[:-1])
    return (
        bool(wanted)
        and is_same(wanted[-1], path[-1])
        and all(any(is_same(part, name) for name in names) for part in wanted[:-1])
    )


def _distinct(entries: Sequence[ReferenceEntry]) -> list[ReferenceEntry]:
    return list({entry.shared: entry for entry in reversed(entries)}.values())[::-1]


def yaml_text(part: Mapping[str, Any]) -> str:
    """Return the YAML of a part of a config."""
    # `dump` escapes the expressions of blocks.
    return dump(located(part, _EXAMPLE_PLACE), _EXAMPLE_WIDTH).replace("$${", "${")
