"""Key-value stores that add up the gradients of several devices (`mxrun.kv`)."""

from __future__ import annotations

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.registry import Registry
from mxrun.kvstore.base import KVStore
from mxrun.kvstore.local import DeviceKVStore, LocalKVStore

__all__ = ["STORES", "KVStore", "create"]

STORES: Registry[type[KVStore]] = Registry("kvstore")
STORES.add("local", LocalKVStore)
STORES.add("device", DeviceKVStore)


def create(name: str = "local") -> KVStore:
    """Return a new store: `local`, or `device`, which adds on the devices themselves.

    Raises UserError for another name.
    """
    if not isinstance(name, str):
        expected, got = "the name of a kind of store", type(name).__name__
        raise UserError(Diagnostic("kvstore", None, expected, got))
    kind = name.lower()
    if kind.startswith("dist"):
        problem = f"there is no store {name!r}: mxrun runs in one process"
        hint = f"there are {', '.join(STORES)}"
        raise UserError(Diagnostic(problem, hint=hint))
    return STORES.get(kind)()
