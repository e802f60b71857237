"""Rows of batches without their bad records, from any number of threads and in parts of batches."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batches import make_slots
from hypothesis import given
from hypothesis import strategies as st

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.loading.bad_records import BadRecord, BadRecords
from mxrun.io.loading.iterator import RecordError
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.order import BatchOrder
from mxrun.io.loading.staging import Staging, staging_specs

COUNT, SIZE = 23, 6
INPUTS = {"data": TensorSpec((2,)), "label": TensorSpec((), "int32")}


def dataset(bad: set[int]) -> Dataset:
    """Records that hold their number, those in `bad` without a number."""

    def read(number: int) -> np.ndarray:
        if number in bad:
            raise UserError(f"packed.rec: byte {16 * number}: no number")
        return np.full(2, number, np.float32)

    def locate(number: int) -> RecordLocation:
        return RecordLocation("packed.rec", number, 16 * number)

    data = LazyField(read, COUNT, (2,), "float32", locate=locate)
    labels = {"label": Field(np.arange(COUNT, dtype=np.int32))}
    return Dataset("packed", labels, lazy={"data": data}, inputs=INPUTS)


def batches(
    bad: set[int], found: BadRecords | None, workers: int = 2, parts: int = 1, **options: Any
) -> list[list[int]]:
    """Return the records of each batch or part, after a check of all their rows."""
    specs = staging_specs(INPUTS, SIZE // parts)
    staging = [{name: np.zeros(s.shape, s.dtype) for name, s in specs.items()} for _ in range(2)]
    memory = Staging(staging)
    options = {"workers": workers, "parts": parts, "staging": memory} | options
    iterator = open_iterator(dataset(bad), SIZE, bad_records=found, seed=3, **options)
    seen = []
    with closing(iterator):
        slots = make_slots(iterator)
        iterator.reset(1)
        while (batch := iterator.next_into(slots)) is not None:
            valid, records = batch.valid, batch.indices[: batch.valid].tolist()
            assert slots["label"][:valid].tolist() == records
            assert slots["data"][:valid].tolist() == [[record, record] for record in records]
            assert slots["sample_weight"].tolist() == [1.0] * valid + [0.0] * batch.pad
            # Padding is of good records, or zero.
            assert set(slots["data"].reshape(-1).tolist()) - {0.0} <= set(range(COUNT)) - bad
            seen.append(records)
    return seen


@pytest.mark.full
@given(
    bad=st.sets(st.integers(0, COUNT - 1), max_size=COUNT - 1),
    kind=st.sampled_from(["pad", "discard"]),
    shuffle=st.booleans(),
    parts=st.sampled_from([1, 2, 3]),
)
def test_D6_the_good_records_of_each_batch_are_there_in_order(bad, kind, shuffle, parts):
    found = BadRecords("the data", COUNT, COUNT)
    options = {"last_batch": kind, "shuffle": shuffle, "parts": parts}
    seen = batches(bad, found, **options)
    assert seen == [
        [record for record in records if record not in bad]
        for records in batches(set(), None, **options)
    ]
    used = BatchOrder(COUNT, SIZE, shuffle, 3, kind, parts).indices(1).tolist()
    assert [each.record for each in found.found] == [
        record for record in dict.fromkeys(used) if record in bad
    ]


@pytest.mark.parametrize("workers", [0, 1, 2, 4, 8])
def test_D6_the_same_are_left_out_by_any_number_of_workers(workers):
    bad = {2, 3, 11, 12, 13, 14, 15, 16, 17}
    expected = BadRecords("the data", COUNT, COUNT)
    found = BadRecords("the data", COUNT, COUNT)
    assert batches(bad, found, workers) == batches(bad, expected, 1)
    assert found.found == expected.found
    assert found.found[2] == BadRecord(11, "packed.rec", 11, 176, "packed.rec: byte 176: no number")


def test_D6_an_error_names_file_number_and_byte():
    with pytest.raises(RecordError) as caught:
        batches({4}, None)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.problem == (
        "record 4 of data set 'packed' (packed.rec, record 4 at byte 64): "
        "packed.rec: byte 64: no number"
    )


def test_D6_the_limit_counts_different_records():
    assert BadRecords("the data", 5000).limit == 50
    assert BadRecords("the data", 200).limit == 10
    # One record must be good.
    assert BadRecords("the data", 4).limit == 3
    assert BadRecords("the data", 200, 0).limit == 0
    few = BadRecords("the data", COUNT, 2)
    for _ in range(2):
        batches({5, 9}, few)
    assert len(few.found) == 2
    listed: list[BadRecord] = []
    few.begin(few.found, listed.append)
    batches({5, 9}, few)
    assert listed == []
    with pytest.raises(RecordError, match="too many bad records of the data: record 5: ") as caught:
        batches({5, 9, 20}, few)
    assert caught.value.diagnostics[0].got == "3"
    assert caught.value.diagnostics[0].expected == "at most 2 of 23 records"
    # The one over the limit is not left out.
    assert len(few.found) == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (ValueError("no number"), "reading has raised ValueError: no number ("),
        (OSError(5, "no disk"), "reading has raised OSError: [Errno 5] no disk ("),
        (None, "reading returned NoneType, not an array"),
        ([1, 2], "reading returned list, not an array"),
        (np.array([None, None]), "reading returned an array of object, not of numbers"),
    ],
)
def test_D6_a_reader_of_the_users_own_may_raise_and_return_anything(content, reason):
    def read(number: int) -> Any:
        if number != 4:
            return np.full(2, number, np.float32)
        if isinstance(content, Exception):
            raise content
        return content

    data = replace(dataset(set()), lazy={"data": LazyField(read, COUNT, (2,), "float32")})
    specs = staging_specs(INPUTS, SIZE)

    def rows(bad: BadRecords | None) -> list[int]:
        memory = Staging([{name: np.zeros(s.shape, s.dtype) for name, s in specs.items()}])
        with closing(open_iterator(data, SIZE, staging=memory, bad_records=bad)) as iterator:
            slots, seen = make_slots(iterator), []
            while (batch := iterator.next_into(slots)) is not None:
                seen += batch.indices[: batch.valid].tolist()
        return seen

    bad = BadRecords.of(data, None)
    assert rows(bad) == [record for record in range(COUNT) if record != 4]
    assert [each.record for each in bad.found] == [4]
    assert bad.found[0].reason.startswith(reason)
    with pytest.raises(RecordError, match="record 4 of data set 'packed': reading"):
        rows(None)
