"""Records of batches: MXNet's last batches, and random access to every batch."""

import json
import os
import subprocess

import numpy as np
import pytest
from batches import make_dataset, make_slots

from mxrun.base.errors import SourceLocation, UserError
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.order import BatchOrder

KINDS = ("pad", "discard", "roll_over")

MXNET = """
import sys, json
import mxnet, numpy
count, size = map(int, sys.argv[1:])
result = {}
for kind in ("pad", "discard", "roll_over"):
    iterator = mxnet.io.NDArrayIter(numpy.arange(count), batch_size=size, last_batch_handle=kind)
    result[kind] = epochs = []
    for _ in range(6):
        epochs.append([batch.data[0].asnumpy().astype(int).tolist() for batch in iterator])
        iterator.reset()
print(json.dumps(result))
"""


def epochs_of(kind: str, count: int, size: int) -> list[list[list[int]]]:
    order = BatchOrder(count, size, last_batch=kind)
    return [order.indices(epoch).reshape(-1, size).tolist() for epoch in range(1, 7)]


def test_the_last_batches_are_mxnets():
    """Results of MXNet 1.9.1 for 10 records in batches of 4."""
    first, second, rest = [0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]
    assert epochs_of("pad", 10, 4) == [[first, second, rest]] * 6
    assert epochs_of("discard", 10, 4) == [[first, second]] * 6
    begun = [rest, [2, 3, 4, 5], [6, 7, 8, 9]]
    assert epochs_of("roll_over", 10, 4) == [[first, second], begun] * 3


@pytest.mark.skipif("MXRUN_MXNET_PYTHON" not in os.environ, reason="MXRUN_MXNET_PYTHON is not set")
@pytest.mark.parametrize(("count", "size"), [(10, 4), (23, 7), (8, 4), (9, 9), (13, 5)])
def test_the_last_batches_are_those_of_mxnet_itself(count, size):
    command = [os.environ["MXRUN_MXNET_PYTHON"], "-c", MXNET, str(count), str(size)]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    for kind in KINDS:
        assert epochs_of(kind, count, size) == answer[kind], kind


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_batch_can_be_reached_without_those_before_it(kind, shuffle):
    def batches(iterator, epoch, first):
        iterator.reset(epoch, first)
        slots, found = make_slots(iterator), []
        while (batch := iterator.next_into(slots)) is not None:
            found.append((batch.valid, batch.indices.tolist(), slots["data"].tobytes()))
        return found

    def make():
        return open_iterator(make_dataset(23), 5, shuffle=shuffle, seed=9, last_batch=kind)

    for epoch in (1, 2, 3, 8):
        whole = batches(make(), epoch, 0)
        assert len(whole) == make().batches(epoch)
        used = make()
        for first in (len(whole), 2, 0, 4):
            assert batches(used, epoch, first) == whole[first:]


@pytest.mark.parametrize(("count", "size"), [(23, 7), (20, 5), (9, 8)])
def test_roll_over_leaves_out_nothing_and_repeats_nothing(count, size):
    order = BatchOrder(count, size, shuffle=True, seed=1, last_batch="roll_over")
    epochs = range(1, 2 * size + 1)
    rows = np.concatenate([order.indices(epoch) for epoch in epochs])
    permutations = [BatchOrder(count, count, True, 1).indices(epoch) for epoch in epochs]
    assert rows.tolist() == np.concatenate(permutations)[: len(rows)].tolist()
    assert len(rows) == sum(map(order.batches, epochs)) * size == 2 * size * count
    assert max(order.batches(epoch) for epoch in epochs) * size == order.longest
    for epoch in epochs:
        drawn = order.draw_epochs(epoch).tolist()
        assert drawn == sorted(drawn)
        assert drawn.count(epoch - 1) == order.carried(epoch)


@pytest.mark.parametrize("kind", ["discard", "roll_over"])
def test_too_few_records_for_one_batch_are_refused(kind):
    place = SourceLocation("c.yaml", 3, 5)
    dataset = Dataset("few", {"label": Field(np.arange(7, dtype=np.int32))}, place=place)
    with pytest.raises(UserError, match=f"last_batch: {kind}") as caught:
        open_iterator(dataset, 8, last_batch=kind)
    (found,) = caught.value.diagnostics
    assert (found.place, found.expected, found.got) == (place, "at least 8 records", "7")
    assert open_iterator(dataset, 7, last_batch=kind).batches(1) == 1
    assert open_iterator(dataset, 8).batches(1) == 1


def test_without_padding_every_row_counts():
    iterator = open_iterator(make_dataset(10), 4, last_batch="discard")
    slots = make_slots(iterator)
    while (batch := iterator.next_into(slots)) is not None:
        assert batch.pad == 0
        assert slots["sample_weight"].tolist() == [1.0] * 4
