"""Keys of a key-value store with their arrays, in the forms that MXNet's calls accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.imperative.arrays.ndarray import NDArray

Key: TypeAlias = int | str
Keys: TypeAlias = Key | Sequence[Key]
Values: TypeAlias = NDArray | Sequence[NDArray] | Sequence[Sequence[NDArray]]

_ARRAYS = "an NDArray, or a list of NDArrays, one for each device"


@dataclass(frozen=True)
class KeyedArrays:
    """Key and its arrays in the order given, usually one of each device."""

    key: Key
    arrays: tuple[NDArray, ...]


def keyed_arrays(keys: Keys, values: Values, argument: str) -> list[KeyedArrays]:
    """Return the arrays of each key, the keys in the order in which they first occur.

    A key has one array or a sequence of arrays; a sequence of keys has as many of these. The arrays
    of a key that occurs several times belong together. `argument` names the values in errors.

    Raises UserError for anything else, such as integers and strings as keys of one call.
    """
    if isinstance(keys, (list, tuple)):
        if not isinstance(values, (list, tuple)) or len(values) != len(keys):
            raise UserError(
                Diagnostic(
                    f"{argument} does not fit the keys",
                    expected=f"a list of {len(keys)}, one for each key",
                    got=f"{len(values)}" if isinstance(values, (list, tuple)) else _kind(values),
                )
            )
        pairs = list(zip(keys, values, strict=True))
    else:
        pairs = [(keys, values)]
    found: dict[Key, list[NDArray]] = {}
    for key, value in pairs:
        found.setdefault(_checked_key(key), []).extend(_arrays(key, value, argument))
    if len({type(key) for key in found}) > 1:
        raise UserError(
            Diagnostic(
                "the keys are of different types",
                expected="integers alone, or strings alone",
                got=", ".join(map(repr, found)),
            )
        )
    # As in MXNet, a key without arrays is left alone.
    return [KeyedArrays(key, tuple(arrays)) for key, arrays in found.items() if arrays]


def _checked_key(key: Any) -> Key:
    if isinstance(key, bool) or not isinstance(key, (int, str)):
        raise UserError(Diagnostic(f"the key {key!r}", None, "an integer or a string", _kind(key)))
    return key


def _arrays(key: Key, value: Any, argument: str) -> Sequence[NDArray]:
    arrays = value if isinstance(value, (list, tuple)) else (value,)
    for array in arrays:
        if not isinstance(array, NDArray):
            problem = f"{argument} of the key {key!r}"
            raise UserError(Diagnostic(problem, None, _ARRAYS, _kind(array)))
    return arrays


def _kind(value: object) -> str:
    return type(value).__name__
