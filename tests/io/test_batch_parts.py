"""Micro-batches contain the records of entire batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batches import make_slots

from mxrun.base.errors import InternalError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.loading.batch import SAMPLE_WEIGHT
from mxrun.io.loading.iterator import DataIterator
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.order import BatchOrder
from mxrun.io.loading.prefetch import PrefetchIterator
from mxrun.io.loading.staging import Staging, staging_specs
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.io.transforms.pipeline import pipeline

COUNT, SIZE, PARTS = 31, 12, 3
INPUTS = {"data": TensorSpec((1, 4, 4)), "label": TensorSpec((), "int32")}
# Random, different for every record in every epoch.
MOVED = pipeline([(TRANSFORMS.get("pad_crop").model_validate({"pad": 1}), None)])


def opened(transformed: bool, last_batch: Any, parts: int) -> DataIterator:
    pixels = np.arange(COUNT * 16, dtype=np.uint8).reshape(COUNT, 1, 4, 4)
    labels = np.arange(COUNT, dtype=np.int32)
    changes: dict[str, Any] = {"pipeline": MOVED, "inputs": INPUTS} if transformed else {}
    dataset = Dataset("made", {"data": Field(pixels, 1 / 255), "label": Field(labels)}, **changes)
    specs = staging_specs(INPUTS, SIZE // parts)
    staging = [
        {name: np.zeros(spec.shape, spec.dtype) for name, spec in specs.items()} for _ in range(2)
    ]
    iterator = open_iterator(
        dataset,
        SIZE,
        shuffle=True,
        seed=3,
        last_batch=last_batch,
        workers=2,
        staging=Staging(staging),
        parts=parts,
    )
    assert isinstance(iterator, PrefetchIterator) == transformed
    return iterator


def rows_of(iterator: DataIterator, epoch: int, batch: int) -> dict[str, list[Any]]:
    """Return all rows of the rest of an epoch, and a mask of those that are records."""
    slots = make_slots(iterator)
    found: dict[str, list[Any]] = {name: [] for name in (*slots, "valid", "indices")}
    iterator.reset(epoch, batch)
    while (given := iterator.next_into(slots)) is not None:
        for name, slot in slots.items():
            found[name] += slot.tolist()
        found["indices"] += given.indices.tolist()
        found["valid"] += [1.0] * given.valid + [0.0] * given.pad
    return found


@pytest.mark.parametrize("last_batch", ["pad", "discard", "roll_over"])
@pytest.mark.parametrize("transformed", [False, True])
def test_D1_parts_are_the_batch_row_by_row(transformed: bool, last_batch: str) -> None:
    """Starts at any batch of any epoch; one part of the last batch may be padding alone."""
    whole, cut = (opened(transformed, last_batch, parts) for parts in (1, PARTS))
    assert (cut.parts, cut.batch_size) == (PARTS, SIZE // PARTS)
    assert cut.period == whole.period
    try:
        for epoch in range(1, 5):
            assert cut.batches(epoch) == whole.batches(epoch)
            for batch in (0, 1):
                expected, found = (rows_of(each, epoch, batch) for each in (whole, cut))
                assert found == expected
                assert found[SAMPLE_WEIGHT] == found["valid"]
                assert len(found["valid"]) == (whole.batches(epoch) - batch) * SIZE
    finally:
        whole.close()
        cut.close()


def test_a_part_may_be_padding_alone() -> None:
    order = BatchOrder(count=27, batch_size=12, parts=4)
    assert [order.valid(part) for part in range(12)] == [3] * 9 + [0] * 3


@pytest.mark.parametrize("parts", [0, 5, 24])
def test_parts_divide_the_batch(parts: int) -> None:
    with pytest.raises(InternalError, match="parts"):
        BatchOrder(count=31, batch_size=12, parts=parts)
