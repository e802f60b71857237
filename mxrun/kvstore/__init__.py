"""Exchange of gradients between devices: for the training loop, and for programs (`mxrun.kv`)."""

from __future__ import annotations

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.registry import Registry
from mxrun.kvstore.distributed import DeviceRankExchange, RankExchange, end_all_on_exception
from mxrun.kvstore.exchange import GradientExchange, borrowed_array
from mxrun.kvstore.local import DeviceExchange, LocalExchange
from mxrun.kvstore.store import KVStore

__all__ = ["EXCHANGES", "GradientExchange", "KVStore", "RankExchange", "borrowed_array", "create"]

ASYNCHRONOUS = "dist_async"
WHY_NOT_ASYNCHRONOUS = (
    "there is no store 'dist_async': its updates come in the order in which processes happen to "
    "push, so that no two runs give the same result"
)
EXCHANGES: Registry[type[GradientExchange]] = Registry("kvstore")
EXCHANGES.add("local", LocalExchange)
EXCHANGES.add("device", DeviceExchange)
EXCHANGES.add("dist_sync", RankExchange)
EXCHANGES.add("dist_device_sync", DeviceRankExchange)


def create(name: str = "local") -> KVStore:
    """Return a new store.

    `local` adds the values of several devices, `device` on the devices themselves; `dist_sync` and
    `dist_device_sync` then add those of all processes that mpirun has started, which must make the
    same calls in the same order. An exception that ends one of these ends all. Raises UserError for
    another name.
    """
    if not isinstance(name, str):
        expected, got = "the name of a kind of store", type(name).__name__
        raise UserError(Diagnostic("kvstore", None, expected, got))
    kind = name.lower()
    if kind == ASYNCHRONOUS:
        raise UserError(Diagnostic(WHY_NOT_ASYNCHRONOUS, hint="dist_sync updates once a step"))
    exchange = EXCHANGES.get(kind)()
    if isinstance(exchange, RankExchange):
        end_all_on_exception()
    return KVStore(exchange)
