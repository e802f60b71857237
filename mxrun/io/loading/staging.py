"""Memory of the batches that are made ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.fields import Inputs
from mxrun.io.loading.iterator import Slots, batched


class StagingUser(Protocol):
    """Writer of staged batches."""

    def cancel(self) -> None:
        """Stop writing, and return when nothing is written any more."""


def staging_specs(inputs: Inputs, batch_size: int) -> dict[str, TensorSpec]:
    """Return the specs of the arrays of one staged batch for a network that reads `inputs`."""
    return batched(inputs, batch_size)


class Staging:
    """Memory for prefetched batches: the arrays of `staging_specs` for each batch.

    Several iterators may share it, as training and evaluation do. A reset claims the memory; the
    iterator that used it before must be reset before it can continue.
    """

    def __init__(self, batches: Sequence[Slots] = ()) -> None:
        self.batches = batches
        self._user: StagingUser | None = None

    def take(self, user: StagingUser) -> None:
        """Make `user` the only one that writes into the memory."""
        if self._user is not None and self._user is not user:
            self._user.cancel()
        self._user = user
