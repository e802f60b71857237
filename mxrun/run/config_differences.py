"""Keys in which resolved configs differ, with dotted names as in overrides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mxrun.base.description import flow

# The name is that of the run itself.
_LEFT_OUT = ("name",)


def config_differences(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[str | None]]:
    """Return the values of the keys in which configs differ, None where a config has no such key.

    A key that is null counts as absent. A layer's parameters follow the layer's name. The keys of a
    layer that one of the configs does not have are left out: the layer itself is among the
    differences. Where a key has a single value in one config and keys below it in another, it is
    compared as a whole.
    """
    nodes = [list(_nodes(config, "")) for config in configs]
    leaves = [{key: value for key, value, is_leaf in each if is_leaf} for each in nodes]
    inner = [{key: value for key, value, is_leaf in each if not is_leaf} for each in nodes]
    keys = dict.fromkeys(key for values in leaves for key in values)
    mixed = {key for values in inner for key in values if key in keys}
    found = {}
    for key in keys:
        if key in _LEFT_OUT or any(part in mixed for part in _above(key)):
            continue
        values = [
            flow(one[key]) if key in one else flow(other[key]) if key in other else None
            for one, other in zip(leaves, inner, strict=True)
        ]
        if len(set(values)) > 1:
            found[key] = values
    absent = [f"{key}." for key, values in found.items() if None in values]
    return {key: values for key, values in found.items() if not key.startswith(tuple(absent))}


def _above(key: str) -> Iterator[str]:
    """Yield the keys above a key: `train.optimizer` and `train` of `train.optimizer.sgd`."""
    while key := key.rpartition(".")[0]:
        yield key


def _nodes(value: Any, key: str) -> Iterator[tuple[str, Any, bool]]:
    """Yield `key` and all keys below it with their values, and whether the value is a leaf."""
    if isinstance(value, Mapping) and value:
        yield key, value, False
        for name, part in value.items():
            yield from _nodes(part, f"{key}.{name}" if key else name)
    elif isinstance(value, tuple) and any(isinstance(part, Mapping) for part in value):
        yield key, value, False
        for number, part in enumerate(value):
            yield from _item(part, key, number)
    elif value is not None:
        yield key, value, True


def _item(part: Any, key: str, number: int) -> Iterator[tuple[str, Any, bool]]:
    """Yield an item of a list: a layer under its name, anything else under its number."""
    if isinstance(part, Mapping) and len(part) == 1:
        ((kind, parameters),) = part.items()
        if isinstance(parameters, Mapping) and isinstance(parameters.get("name"), str):
            name = f"{key}.{parameters['name']}"
            yield name, kind, True
            for each, given in parameters.items():
                if each != "name":
                    yield from _nodes(given, f"{name}.{each}")
            return
    yield from _nodes(part, f"{key}.{number}")
