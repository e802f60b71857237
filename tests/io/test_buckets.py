"""Batches of one bucket each: every record once, in an order of seed and epoch alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mxrun.base.errors import InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.io.loading.open import open_iterator

LENGTHS = (2, 5, 8)
INPUTS = {
    "data": TensorSpec((8,), "int32"),
    "mask": TensorSpec((8,)),
    "lengths": TensorSpec((), "int32"),
    "label": TensorSpec((), "int32"),
}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Texts of 1 to 12 words; those longer than 8 are cut."""
    random = np.random.default_rng(0)
    lines = [
        f"{number % 2}\t{' '.join(f'w{word}' for word in random.integers(0, 50, size))}\n"
        for number, size in enumerate(random.integers(1, 13, 203))
    ]
    (tmp_path / "a.txt").write_text("".join(lines))
    options = {"path": str(tmp_path / "a.txt"), "buckets": LENGTHS[:-1]}
    request = request_dataset("text_lines", options, None)
    return open_datasets({"train": request}, INPUTS)["train"]


def slots_of(specs: dict[str, TensorSpec]) -> dict[str, Any]:
    return {name: np.full(spec.shape, -1, spec.dtype) for name, spec in specs.items()}


def batches(
    dataset: Dataset, size: int, epoch: int = 1, first: int = 0, **order: Any
) -> list[tuple[int, int, list[int], dict[str, Any]]]:
    """Bucket, valid rows, records and slots of each batch of an epoch."""
    iterator = open_iterator(dataset, size, **order)
    slots = [slots_of(iterator.bucket_specs(bucket)) for bucket in range(len(LENGTHS))]
    iterator.reset(epoch, first)
    found = []
    bucket = iterator.bucket
    while (batch := iterator.next_into(slots[bucket])) is not None:
        copies = {name: slot.copy() for name, slot in slots[bucket].items()}
        found.append((bucket, batch.valid, batch.indices.tolist(), copies))
        bucket = iterator.bucket
    return found


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_record_comes_once_in_a_batch_of_its_bucket(dataset, shuffle):
    found = batches(dataset, 16, shuffle=shuffle, seed=3)
    data, lengths = (dataset.fields[name].records for name in ("data", "lengths"))
    seen = []
    for bucket, valid, records, slots in found:
        length = LENGTHS[bucket]
        assert slots["data"].shape == slots["mask"].shape == (16, length)
        assert np.array_equal(slots["data"], data[records][:, :length])
        # What a shorter batch leaves out is padding.
        assert not data[records][:, length:].any()
        shorter = LENGTHS[bucket - 1] if bucket else 0
        assert all(shorter < lengths[record] <= length for record in records)
        assert np.array_equal(slots["mask"].sum(1), slots["lengths"])
        assert slots["sample_weight"].tolist() == [1] * valid + [0] * (16 - valid)
        seen += records[:valid]
    assert sorted(seen) == list(range(203))
    counts = Counter(bucket for bucket, *_ in found)
    numbers = np.searchsorted(LENGTHS, lengths)
    assert [counts[bucket] for bucket in range(3)] == [
        -(-int(count) // 16) for count in np.bincount(numbers)
    ]
    buckets = [bucket for bucket, *_ in found]
    assert (buckets == sorted(buckets)) == (not shuffle)


def test_the_order_depends_on_seed_and_epoch_alone(dataset):
    def order(**given: Any) -> list[tuple[int, list[int]]]:
        return [(each[0], each[2]) for each in batches(dataset, 16, shuffle=True, **given)]

    first = order(seed=3, epoch=2)
    assert first == order(seed=3, epoch=2, workers=4)
    assert first[5:] == order(seed=3, epoch=2, first=5)
    assert first != order(seed=3, epoch=3)
    assert first != order(seed=4, epoch=2)


def test_incomplete_batches_are_dropped_or_padded(dataset):
    kept = batches(dataset, 16, shuffle=True, last_batch="discard")
    assert all(valid == 16 for _, valid, *_ in kept)
    assert len(kept) < len(batches(dataset, 16, shuffle=True))
    with pytest.raises(UserError, match="no bucket of data set 'text_lines' has enough records"):
        open_iterator(dataset, 150, last_batch="discard")
    assert len(batches(dataset, 150)) == 3


def test_slots_of_the_longest_bucket_hold_every_batch(dataset):
    iterator = open_iterator(dataset, 16, shuffle=True)
    assert iterator.bucket_lengths == LENGTHS
    assert iterator.specs == iterator.bucket_specs(2)
    slots = slots_of(iterator.specs)
    iterator.reset(1)
    for _, valid, records, _ in batches(dataset, 16, shuffle=True):
        batch = iterator.next_into(slots)
        assert batch is not None
        assert (batch.valid, batch.indices.tolist()) == (valid, records)
        assert np.array_equal(slots["data"], dataset.fields["data"].records[records])
    assert iterator.next_into(slots) is None
    iterator.reset(1)
    other = (iterator.bucket + 1) % 2
    with pytest.raises(InternalError, match="slot 'data'"):
        iterator.next_into(slots_of(iterator.bucket_specs(other)))


def test_batches_come_in_parts(dataset):
    whole = batches(dataset, 16, shuffle=True)
    parts = batches(dataset, 16, shuffle=True, parts=4)
    assert len(parts) == 4 * len(whole)
    for number, (bucket, valid, records, slots) in enumerate(whole):
        own = parts[4 * number : 4 * number + 4]
        assert [each[0] for each in own] == [bucket] * 4
        assert sum(each[1] for each in own) == valid
        assert [record for each in own for record in each[2]] == records
        assert np.array_equal(np.concatenate([each[3]["data"] for each in own]), slots["data"])


@pytest.mark.parametrize("buckets", [[5, 2], [3, 3], [9]])
def test_lengths_that_do_not_ascend_are_refused(tmp_path, buckets):
    (tmp_path / "a.txt").write_text("x\ty\n")
    options = {"path": str(tmp_path / "a.txt"), "buckets": buckets}
    with pytest.raises(UserError, match="do not ascend"):
        open_datasets({"train": request_dataset("text_lines", options, None)}, INPUTS)
