"""Results of all records as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.inference.prepared_inference import InferenceBatch


def result_arrays(batches: Sequence[InferenceBatch]) -> dict[str, npt.NDArray[Any]]:
    """Return the results of all records by output, [records, *shape], in the order of the records.

    Batches of a stream, and of buckets, have the records in another order.
    """
    arrays = {
        name: np.concatenate([batch.arrays[name] for batch in batches])
        for name in batches[0].arrays
    }
    numbers = [batch.records.numbers for batch in batches if batch.records.numbers is not None]
    if not numbers:
        return arrays
    order = np.argsort(np.concatenate(numbers), kind="stable")
    return {name: array[order] for name, array in arrays.items()}
