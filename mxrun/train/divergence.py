"""Numbers that are no longer finite: the errors, and where the first of them was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.errors import Diagnostic
from mxrun.base.near_names import listed
from mxrun.executor.checked import NonFinite, first_non_finite
from mxrun.executor.executor import Executor
from mxrun.graph.phases import EVALUATE
from mxrun.io.batch import Batch
from mxrun.train.progress import Progress

_MAX_RECORDS = 16


class Diverged(Exception):
    """Something became NaN or infinite in or before the step in hand; nothing more is trained."""


class Located(Exception):
    """Where the first number went wrong."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(str(diagnostic))
        self.diagnostic = diagnostic


class EvaluationDiverged(Located):
    """The loss of an evaluation became NaN or infinite; parameters and states are finite."""


def located_in_evaluation(
    executor: Executor, slots: Mapping[str, npt.NDArray[Any]], batch: Batch, progress: Progress
) -> Diagnostic:
    """Run the batch in the slots again, call by call, and say which operator was the first that
    wrote NaN or infinity.
    """
    problem = f"the evaluation after epoch {progress.epoch} (step {progress.step}) is not finite"
    hint = (
        "what was trained is finite and saved; lower the learning rate (train.optimizer), or "
        "repair the records or transforms of data.eval and go on with --resume --allow-changes"
    )
    bad = bad_record(slots, batch)
    if bad is not None:
        name, record = bad
        problem = f"{problem}: record {record} of the evaluation data is not finite in {name!r}"
        return Diagnostic(problem, hint=hint)
    found = first_non_finite(executor, EVALUATE)
    why = "the loss is beyond float32" if found is None else written_text(found)
    return Diagnostic(
        f"{problem}: {why}",
        expected="finite numbers",
        got=f"a batch of the evaluation records {records_text(batch)}",
        hint=hint,
    )


def bad_record(slots: Mapping[str, npt.NDArray[Any]], batch: Batch) -> tuple[str, int] | None:
    """The first input with a record that is not finite, and that record's number."""
    for name, slot in slots.items():
        if slot.dtype.kind == "f" and not is_finite(slot):
            row = int(np.argwhere(~np.isfinite(slot))[0][0])
            return name, int(batch.indices[row])
    return None


def written_text(found: NonFinite) -> str:
    """Which operator wrote what, and where: `'fc1' (FullyConnected) wrote inf into 'x'[0, 3]`."""
    where = "" if not found.index else str(list(found.index))
    return f"{found.step!r} ({found.operator}) wrote {found.value} into {found.tensor!r}{where}"


def records_text(batch: Batch) -> str:
    """The numbers of a batch's records, of which only the first are listed."""
    records = [str(int(record)) for record in batch.indices[: batch.valid]]
    return listed(records, _MAX_RECORDS)


def is_finite(array: npt.NDArray[Any]) -> bool:
    """Whether every element is a number; allocates nothing where that is so."""
    # NaN and infinities survive a sum. A sum of numbers may still overflow: then look closely.
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(array, axis=None)
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())
