"""Key-value stores of programs, after MXNet's KVStore.

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

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import write_bytes
from mxrun.imperative.arrays.ndarray import NDArray
from mxrun.imperative.optimizer import ImperativeOptimizer, Updater
from mxrun.kvstore.exchange import GradientExchange, UpdaterFunction
from mxrun.kvstore.keys import Key, KeyedArrays, Keys, Values, keyed_arrays

OPTIMIZER = "optimizer"
"""Capability of stores on which an optimizer can run."""


class KVStore:
    """Face of an exchange: the calls' arguments, the keys' declarations, the optimizer's files.

    Keys are integers, or strings; one store has keys of one type. Values are an array, a list of
    arrays (one of each device), or for a list of keys a list of these.
    """

    def __init__(self, exchange: GradientExchange) -> None:
        self._exchange = exchange

    # -- facts ---------------------------------------------------------------------------------

    @property
    def type(self) -> str:
        """Name by which `create` makes the store."""
        return self._exchange.type

    @property
    def rank(self) -> int:
        """Number of this process among the workers, from 0."""
        return self._exchange.rank

    @property
    def num_workers(self) -> int:
        """Number of processes that push to the store."""
        return self._exchange.size

    def barrier(self) -> None:
        """Wait until every worker has called this, and for the values pushed before."""
        self._exchange.barrier()

    def is_capable(self, capability: str) -> bool:
        """Return whether the store has a capability; the only known one is `optimizer`.

        Raises UserError for another one.
        """
        if capability.lower() != OPTIMIZER:
            raise UserError(Diagnostic(f"unknown capability {capability!r}", None, OPTIMIZER))
        return True

    # -- values --------------------------------------------------------------------------------

    def init(self, key: Keys, value: Values) -> None:
        """Declare keys with their initial values, which are copied.

        Raises UserError for a key that is declared already; then no key of the call is declared.
        """
        declared = keyed_arrays(key, value, "value")
        for each in declared:
            self._require_type(each.key)
            if each.key in self._exchange.stored or len(each.arrays) > 1:
                hint = "every key is initialised once, by init or by broadcast"
                raise UserError(Diagnostic(f"duplicate init of the key {each.key!r}", hint=hint))
        for each in declared:
            self._exchange.init(each.key, each.arrays[0])

    def push(self, key: Keys, value: Values, priority: int = 0) -> None:
        """Push values to keys: their sum replaces the stored value or is given to the updater.

        priority: of the operations; those with higher ones run earlier. Raises UserError for
        unknown keys and for values that differ from the stored one in shape or data type, and
        whatever the updater raises.
        """
        for each in self._checked(key, value, "value"):
            self._exchange.push(each.key, each.arrays, priority)

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
                self._exchange.pull(each.key, target, priority)

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
        """Raise UserError: gradients are added in full precision."""
        problem = f"the store {self.type!r} has no gradient compression"
        raise UserError(Diagnostic(problem, hint="gradients are added in full precision"))

    # -- updates -------------------------------------------------------------------------------

    def set_updater(self, updater: UpdaterFunction) -> None:
        """Set the function `updater(key, pushed, stored)` that changes the stored value in place.

        It is called by `push`, in the calling thread; operations on the arrays are asynchronous as
        everywhere.
        """
        self._exchange.updater = updater

    def set_optimizer(self, optimizer: ImperativeOptimizer) -> None:
        """Update the stored values by an optimizer: pushed values are gradients, stored weights."""
        self._exchange.set_optimizer(optimizer)

    def save_optimizer_states(
        self, fname: str | PathLike[str], dump_optimizer: bool = False
    ) -> None:
        """Write the optimizer's states to a safetensors file, atomically.

        All workers have the same states: the first one writes them, and the others wait for it.

        dump_optimizer: whether the optimizer's own settings are written too. Raises UserError
        without an optimizer, or if the file cannot be written.
        """
        states = self._optimizer_updater("save").get_states(dump_optimizer)
        try:
            if self.rank == 0:
                write_bytes(Path(fname), states)
        finally:
            self.barrier()

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
        updater = self._exchange.updater
        if not isinstance(updater, Updater):
            hint = "call set_optimizer first"
            raise UserError(Diagnostic(f"there are no optimizer states to {what}", hint=hint))
        return updater

    # -- checks --------------------------------------------------------------------------------

    def _checked(self, key: Keys, value: Values, argument: str) -> list[KeyedArrays]:
        """Return the arrays of declared keys, all of the stored values' shapes and types."""
        found = keyed_arrays(key, value, argument)
        for each in found:
            self._require_type(each.key)
            stored = self._exchange.stored.get(each.key)
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
        first = next(iter(self._exchange.stored), key)
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
