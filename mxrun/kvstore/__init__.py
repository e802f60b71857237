"""Exchange of gradients between devices: for the training loop, and for programs (`mxrun.kv`)."""

from __future__ import annotations

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.registry import Registry
from mxrun.kvstore.exchange import GradientExchange, borrowed_array
from mxrun.kvstore.local import DeviceExchange, LocalExchange
from mxrun.kvstore.store import KVStore

__all__ = ["EXCHANGES", "GradientExchange", "KVStore", "borrowed_array", "create"]

EXCHANGES: Registry[type[GradientExchange]] = Registry("kvstore")
EXCHANGES.add("local", LocalExchange)
EXCHANGES.add("device", DeviceExchange)


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
        hint = f"there are {', '.join(EXCHANGES)}"
        raise UserError(Diagnostic(problem, hint=hint))
    return KVStore(EXCHANGES.get(kind)())
