"""Keys in which resolved configs differ, with dotted names as in overrides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# The name is that of the run itself.
_LEFT_OUT = ("name",)


def config_differences(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[str | None]]:
    """Return the values of the keys in which configs differ, None where a config has no such key.

    A layer's parameters follow the layer's name. The keys of a layer that one of the configs does
    not have are left out: the layer itself is among the differences.
    """
    flat = [dict(_leaves(config, "")) for config in configs]
    keys = dict.fromkeys(key for values in flat for key in values)
    found = {
        key: [values.get(key) for values in flat]
        for key in keys
        if key not in _LEFT_OUT and len({values.get(key) for values in flat}) > 1
    }
    absent = [f"{key}." for key, values in found.items() if None in values]
    return {key: values for key, values in found.items() if not key.startswith(tuple(absent))}


def _leaves(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield the values below `key` by their dotted keys."""
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from _leaves(part, f"{key}.{name}" if key else name)
    elif isinstance(value, tuple) and any(isinstance(part, Mapping) for part in value):
        for number, part in enumerate(value):
            yield from _item(part, key, number)
    else:
        yield key, _text(value)


def _item(part: Any, key: str, number: int) -> Iterator[tuple[str, str]]:
    """Yield an item of a list: a layer under its name, anything else under its number."""
    if isinstance(part, Mapping) and len(part) == 1:
        ((kind, parameters),) = part.items()
        if isinstance(parameters, Mapping) and isinstance(parameters.get("name"), str):
            name = f"{key}.{parameters['name']}"
            yield name, kind
            others = {each: given for each, given in parameters.items() if each != "name"}
            if others:
                yield from _leaves(others, name)
            return
    yield from _leaves(part, f"{key}.{number}")


def _text(value: Any) -> str:
    """Return a value as in YAML's flow style."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else str(value)
