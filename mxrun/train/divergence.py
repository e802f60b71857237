"""Errors for values that are NaN or infinite, and search for the operator that wrote the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import Diagnostic
from mxrun.base.near_names import listed
from mxrun.executor.checked import NonFinite, first_non_finite
from mxrun.executor.executor import Executor
from mxrun.io.loading.batch import Batch
from mxrun.train.progress import Progress

_MAX_RECORDS = 16


class Diverged(Exception):
    """A value became NaN or infinite in or before the current step; training stops."""


class Located(Exception):
    """Error with the location of the first value that is not finite."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(str(diagnostic))
        self.diagnostic = diagnostic


class EvaluationDiverged(Located):
    """The loss of an evaluation became NaN or infinite; parameters and states are finite."""


def located_in_evaluation(
    executor: Executor,
    program: str,
    slots: Mapping[str, npt.NDArray[Any]],
    batch: Batch,
    progress: Progress,
) -> Diagnostic:
    """Run the batch in the slots again, call by call, and return a diagnostic.

    program: that of its evaluation. The diagnostic names the first operator that wrote NaN or
    infinity.
    """
    problem = f"the evaluation after epoch {progress.epoch} (step {progress.step}) is not finite"
    bad = bad_record(slots, batch)
    if bad is not None:
        name, record = bad
        problem = f"{problem}: record {record} of the evaluation data is not finite in {name!r}"
        return Diagnostic(problem)
    found = first_non_finite(executor, program)
    why = "the loss exceeds float32" if found is None else written_text(found)
    return Diagnostic(
        f"{problem}: {why}",
        expected="finite numbers",
        got=f"a batch of the evaluation records {records_text(batch)}",
    )


def bad_record(slots: Mapping[str, npt.NDArray[Any]], batch: Batch) -> tuple[str, int] | None:
    """Return the first input with a record that is not finite, and the record's number, or None."""
    for name, slot in slots.items():
        if slot.dtype.kind == "f" and not is_finite(slot):
            row = int(np.argwhere(~np.isfinite(slot))[0][0])
            return name, int(batch.indices[row])
    return None


def written_text(found: NonFinite) -> str:
    """Describe a non-finite value: `'fc1' (FullyConnected) wrote inf into 'x'[0, 3]`."""
    where = "" if not found.index else str(list(found.index))
    return f"{found.step!r} ({found.operator}) wrote {found.value} into {found.tensor!r}{where}"


def records_text(batch: Batch) -> str:
    """Return the numbers of a batch's records as text; at most `_MAX_RECORDS` are listed."""
    records = [str(int(record)) for record in batch.indices[: batch.valid]]
    return listed(records, _MAX_RECORDS)


def is_finite(array: npt.NDArray[Any]) -> bool:
    """Return whether every element is finite; allocates nothing if so."""
    # NaN and infinities propagate through a sum. A sum of finite numbers may overflow: then test
    # all.
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(array, axis=None)
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())
