"""Interface of key-value stores, after MXNet's KVStore.

A store holds one value for each key. Data-parallel training pushes the gradients of all devices to
a parameter's key, where they are summed, and pulls the new value to every device:

    kv = mxrun.kv.create("local")
    kv.init("weight", weight)
    kv.push("weight", [gradient_0, gradient_1])
    kv.pull("weight", out=[weight_0, weight_1])

Without an updater the sum replaces the stored value. With one, `updater(key, sum, stored)` changes
the stored value; `set_optimizer` sets the updater of an optimizer. All operations are pushed to the
engine and return at once; whoever reads an array waits for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import write_bytes
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.optimizer import ImperativeOptimizer, Updater, get_updater
from mxrun.kvstore.keys import Key, KeyedArrays, Keys, Values, keyed_arrays

UpdaterFunction: TypeAlias = Callable[[Key, NDArray, NDArray], object]

OPTIMIZER = "optimizer"
"""Capability of stores on which an optimizer can run."""


class KVStore(ABC):
    """Base of key-value stores: the calls' arguments, the keys' declarations, the updater.

    A kind of store defines what happens to a value: `_store`, `_reduce`, `_replace` and `_copy`.
    _values: the stored array of each key.

    Keys are integers, or strings; one store has keys of one type. Values are an array, a list of
    arrays (one of each device), or for a list of keys a list of these.
    """

    def __init__(self) -> None:
        self._updater: UpdaterFunction | None = None
        self._values: dict[Key, NDArray] = {}

    # -- facts ---------------------------------------------------------------------------------

    @property
    @abstractmethod
    def type(self) -> str:
        """Name by which `create` makes the store."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Number of this process among the workers, from 0."""

    @property
    @abstractmethod
    def num_workers(self) -> int:
        """Number of processes that push to the store."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every worker has called this."""

    def is_capable(self, capability: str) -> bool:
        """Return whether the store has a capability; the only known one is `optimizer`.

        Raises UserError for another one.
        """
        if capability.lower() != OPTIMIZER:
            raise UserError(Diagnostic(f"unknown capability {capability!r}", None, OPTIMIZER))
        return True

    # -- what a kind of store does -------------------------------------------------------------

    @abstractmethod
    def _store(self, key: Key, value: NDArray) -> None:
        """Set a key's stored array to a copy of its initial value."""

    @abstractmethod
    def _reduce(self, key: Key, arrays: Sequence[NDArray], priority: int) -> NDArray:
        """Return the sum of a key's arrays of all devices and workers, beside its stored array.

        The result may be the only array itself.
        """

    @abstractmethod
    def _replace(self, key: Key, arrays: Sequence[NDArray], priority: int) -> None:
        """Replace a key's stored value by the sum of the arrays of all devices and workers."""

    @abstractmethod
    def _copy(self, key: Key, target: NDArray, priority: int) -> None:
        """Copy a key's stored value to an array on any device."""

    # -- values --------------------------------------------------------------------------------

    def init(self, key: Keys, value: Values) -> None:
        """Declare keys with their initial values, which are copied.

        Raises UserError for a key that is declared already; then no key of the call is declared.
        """
        declared = keyed_arrays(key, value, "value")
        for each in declared:
            self._require_type(each.key)
            if each.key in self._values or len(each.arrays) > 1:
                hint = "every key is initialised once, by init or by broadcast"
                raise UserError(Diagnostic(f"duplicate init of the key {each.key!r}", hint=hint))
        for each in declared:
            self._store(each.key, each.arrays[0])

    def push(self, key: Keys, value: Values, priority: int = 0) -> None:
        """Push values to keys: their sum replaces the stored value or is given to the updater.

        priority: of the operations; those with higher ones run earlier. Raises UserError for
        unknown keys and for values that differ from the stored one in shape or data type, and
        whatever the updater raises.
        """
        for each in self._checked(key, value, "value"):
            if self._updater is None:
                self._replace(each.key, each.arrays, priority)
            else:
                total = self._reduce(each.key, each.arrays, priority)
                self._updater(each.key, total, self._values[each.key])

    def pull(
        self,
        key: Keys,
        out: Values | None = None,
        priority: int = 0,
        ignore_sparse: bool = True,
    ) -> None:
        """Copy the values of keys to arrays on any devices.

        ignore_sparse: accepted for MXNet's programs; arrays here are never sparse. Raises UserError
        for unknown keys and for arrays that differ from the value in shape or data type.
        """
        for each in self._checked(key, _given(out), "out"):
            for target in each.arrays:
                self._copy(each.key, target, priority)

    def pushpull(
        self, key: Keys, value: Values, out: Values | None = None, priority: int = 0
    ) -> None:
        """Push values and pull the results to `out`, by default to the values' own arrays."""
        target = value if out is None else out
        self._checked(key, target, "out")
        self.push(key, value, priority)
        self.pull(key, target, priority)

    def broadcast(self, key: Keys, value: Values, out: Values, priority: int = 0) -> None:
        """Declare keys with their initial values and pull these to `out`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(
        self,
        key: Keys,
        out: Values | None = None,
        priority: int = 0,
        row_ids: NDArray | Sequence[NDArray] | None = None,
    ) -> None:
        """Raise UserError: arrays here are never sparse."""
        raise UserError(
            Diagnostic(
                "row_sparse_pull needs arrays of storage type row_sparse, which mxrun does not "
                "have",
                hint="pull copies all rows",
            )
        )

    def set_gradient_compression(self, compression_params: object) -> None:
        """Raise UserError: gradients do not leave the machine."""
        problem = f"the store {self.type!r} has no gradient compression"
        raise UserError(Diagnostic(problem, hint="gradients are added in full precision"))

    # -- updates -------------------------------------------------------------------------------

    def set_updater(self, updater: UpdaterFunction) -> None:
        """Set the function `updater(key, pushed, stored)` that changes the stored value in place.

        It is called by `push`, in the calling thread; operations on the arrays are asynchronous as
        everywhere.
        """
        self._updater = updater

    def set_optimizer(self, optimizer: ImperativeOptimizer) -> None:
        """Update the stored values by an optimizer: pushed values are gradients, stored weights."""
        self.set_updater(get_updater(optimizer))

    def save_optimizer_states(
        self, fname: str | PathLike[str], dump_optimizer: bool = False
    ) -> None:
        """Write the optimizer's states to a safetensors file, atomically.

        dump_optimizer: whether the optimizer's own settings are written too. Raises UserError
        without an optimizer, or if the file cannot be written.
        """
        write_bytes(Path(fname), self._optimizer_updater("save").get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str | PathLike[str]) -> None:
        """Read the states that `save_optimizer_states` has written.

        Raises UserError without an optimizer, or for a file that cannot be read or holds something
        else.
        """
        updater, path = self._optimizer_updater("load"), Path(fname)
        try:
            content = path.read_bytes()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UserError(Diagnostic(f"cannot read {path}: {reason}")) from error
        updater.set_states(content, str(path))

    def _optimizer_updater(self, what: str) -> Updater:
        if not isinstance(self._updater, Updater):
            hint = "call set_optimizer first"
            raise UserError(Diagnostic(f"there are no optimizer states to {what}", hint=hint))
        return self._updater

    # -- checks --------------------------------------------------------------------------------

    def _checked(self, key: Keys, value: Values, argument: str) -> list[KeyedArrays]:
        """Return the arrays of declared keys, all of the stored values' shapes and types."""
        found = keyed_arrays(key, value, argument)
        for each in found:
            self._require_type(each.key)
            stored = self._values.get(each.key)
            if stored is None:
                problem = f"the key {each.key!r} has not been initialised"
                raise UserError(Diagnostic(problem, hint=f"call init({each.key!r}, value) first"))
            for array in each.arrays:
                if (array.shape, array.dtype) != (stored.shape, stored.dtype):
                    raise UserError(
                        Diagnostic(
                            f"{argument} of the key {each.key!r} differs from the stored value",
                            expected=_described(stored),
                            got=_described(array),
                        )
                    )
        return found

    def _require_type(self, key: Key) -> None:
        first = next(iter(self._values), key)
        if type(first) is not type(key):
            raise UserError(
                Diagnostic(
                    f"the key {key!r} is of another type than the store's",
                    expected=f"{'a string' if isinstance(first, str) else 'an integer'}, such as "
                    f"{first!r}",
                )
            )


def _given(out: Values | None) -> Values:
    if out is None:
        raise UserError(Diagnostic("pull has no arrays to copy the values to", None, "out=..."))
    return out


def _described(array: NDArray) -> str:
    return f"shape {array.shape}, {array.dtype}"
