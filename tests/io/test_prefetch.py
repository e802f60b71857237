"""Loader threads, rows D3 and D5: the same rows from any number of threads, prefetched."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from batches import make_dataset, make_slots
from commands import HANG_S
from refusals import only_problem

from mxrun.base.errors import Diagnostic, InternalError, SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, LazyField
from mxrun.io.loading.array_iterator import ArrayIterator
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.order import BatchOrder
from mxrun.io.loading.prefetch import PrefetchIterator
from mxrun.io.loading.staging import Staging, staging_specs
from mxrun.io.transforms.base import TRANSFORMS, Transform
from mxrun.io.transforms.pipeline import pipeline

INPUTS = {"data": TensorSpec((3, 6, 8)), "label": TensorSpec((), "int32")}
COUNT, SIZE = 23, 5

Reader = Callable[[int], np.ndarray]


def picture(index: int) -> np.ndarray:
    return (np.arange(144) * (index + 3) % 251).astype(np.uint8).reshape(3, 6, 8)


def lazy_dataset(read: Reader = picture, count: int = COUNT, **changes: Any) -> Dataset:
    data = LazyField(read, count, (3, None, None), "uint8", 1 / 255)
    labels = {"label": Field(np.arange(count, dtype=np.int32))}
    return Dataset("pictures", labels, lazy={"data": data}, inputs=INPUTS, **changes)


def steps(*names: str, **parameters: Any) -> Any:
    def make(name: str) -> Transform:
        return TRANSFORMS.get(name).model_validate(parameters.get(name, {}))

    return pipeline([(make(name), None) for name in names])


AUGMENTED = steps(
    "random_resized_crop",
    "flip",
    "pad_crop",
    "color_jitter",
    "cutout",
    "normalize",
    random_resized_crop={"size": (6, 8)},
    pad_crop={"pad": 2},
    color_jitter={"brightness": 0.3, "contrast": 0.3, "saturation": 0.3},
    cutout={"size": 2},
    normalize={"mean": 0.4, "std": (0.2, 0.3, 0.4)},
)


@contextmanager
def opened(
    dataset: Dataset, *, workers: int = 1, ahead: int = 2, size: int = SIZE, **options: Any
) -> Iterator[PrefetchIterator]:
    others = loaders()
    specs = staging_specs(dataset.inputs, size)
    staging = [
        {name: np.full(spec.shape, 77, spec.dtype) for name, spec in specs.items()}
        for _ in range(ahead)
    ]
    iterator = open_iterator(dataset, size, workers=workers, staging=Staging(staging), **options)
    assert isinstance(iterator, PrefetchIterator)
    try:
        yield iterator
    finally:
        iterator.close()
    assert loaders() <= others


def loaders() -> set[threading.Thread]:
    """The threads of all iterators, also of those that other tests left to be collected."""
    return {each for each in threading.enumerate() if each.name.startswith("mxrun loader")}


def read(iterator: Any, epoch: int, first: int = 0) -> list[tuple[Any, ...]]:
    """Return the content of all batches of an epoch."""
    slots, found = make_slots(iterator), []
    iterator.reset(epoch, first)
    while (batch := iterator.next_into(slots)) is not None:
        rows = tuple(slot.tobytes() for slot in slots.values())
        found.append((batch.valid, batch.indices.tolist(), rows))
    return found


@pytest.mark.parametrize("kind", ["pad", "discard", "roll_over"])
def test_D5_rows_are_the_same_from_any_number_of_workers(kind):
    dataset = lazy_dataset(pipeline=AUGMENTED)
    options = {"shuffle": True, "seed": 6, "last_batch": kind}
    with opened(dataset, **options) as iterator:
        expected = {epoch: read(iterator, epoch) for epoch in (1, 2, 3)}
    assert expected[1] != expected[2]
    for workers, ahead in ((4, 1), (4, 3), (7, 2), (2, 16)):
        with opened(dataset, workers=workers, ahead=ahead, **options) as iterator:
            for epoch in (3, 1, 2):
                assert read(iterator, epoch) == expected[epoch]
                assert read(iterator, epoch, first=2) == expected[epoch][2:]
    with opened(dataset, engine="naive", **options) as iterator:
        assert [read(iterator, epoch) for epoch in (1, 2, 3)] == list(expected.values())


def test_D5_a_record_rolled_over_keeps_the_draws_of_its_epoch():
    """A record has one draw per epoch, even if it appears twice."""
    dataset = lazy_dataset(pipeline=steps("pad_crop", pad_crop={"pad": 3}))
    with opened(dataset, shuffle=True, last_batch="roll_over") as iterator:
        rows: dict[tuple[int, int], set[bytes]] = {}
        slots = make_slots(iterator)
        position = 0
        for epoch in range(1, 6):
            iterator.reset(epoch)
            while (batch := iterator.next_into(slots)) is not None:
                for row, record in enumerate(batch.indices.tolist()):
                    key = (position // COUNT + 1, record)
                    rows.setdefault(key, set()).add(slots["data"][row].tobytes())
                    position += 1
    with opened(dataset, shuffle=True) as iterator:
        slots = make_slots(iterator)
        for epoch in range(1, 5):
            iterator.reset(epoch)
            while (batch := iterator.next_into(slots)) is not None:
                for row, record in enumerate(batch.indices.tolist()[: batch.valid]):
                    assert rows[epoch, record] == {slots["data"][row].tobytes()}


def test_rows_are_those_of_the_iterator_over_memory():
    dataset = make_dataset(COUNT)
    inputs = dataset.specs
    lazy = LazyField(dataset.fields["data"].records.__getitem__, COUNT, (1, 2), "uint8", 1 / 255)
    fields = {"label": dataset.fields["label"]}
    with opened(replace(dataset, fields=fields, lazy={"data": lazy}, inputs=inputs)) as iterator:
        memory = open_iterator(dataset, SIZE)
        assert iterator.specs == memory.specs
        assert read(iterator, 1) == read(memory, 1)


def test_memory_without_transforms_is_read_directly():
    iterator = open_iterator(make_dataset(), 64, shuffle=True, seed=2, workers=4)
    assert isinstance(iterator, ArrayIterator)
    order = BatchOrder(len(make_dataset()), 64, shuffle=True, seed=2)
    assert read(iterator, 1) == read(ArrayIterator(make_dataset(), order), 1)
    iterator.close()


def test_D3_batches_are_made_while_the_step_runs():
    """The step ends only when the next batch is ready, and never waits for it."""
    with opened(lazy_dataset(pipeline=AUGMENTED), workers=2, last_batch="discard") as iterator:
        slots, deadline = make_slots(iterator), time.monotonic() + HANG_S
        iterator.reset(1)
        for batch in range(COUNT // SIZE):
            while not iterator._loader.is_ready(batch):
                assert time.monotonic() < deadline
                time.sleep(0.001)
            assert iterator.next_into(slots) is not None
        assert iterator.next_into(slots) is None
        assert iterator.waited_seconds == 0


def test_D3_a_batch_that_is_not_made_yet_is_waited_for():
    """The first record is read only when the consumer waits for it."""
    asked = threading.Event()

    def late(index: int) -> np.ndarray:
        assert asked.wait(HANG_S)
        return picture(index)

    with opened(lazy_dataset(late), size=1) as iterator:
        iterator.watch_waits(lambda seconds, record: asked.set())
        started = time.perf_counter()
        iterator.reset(1)
        slots = make_slots(iterator)
        assert iterator.next_into(slots) is not None
        assert 0 < iterator.waited_seconds <= time.perf_counter() - started


@pytest.mark.parametrize(("workers", "engine"), [(0, "threaded"), (2, "naive")])
def test_batches_that_the_thread_itself_makes_are_waits(workers: int, engine: str):
    made: dict[int, float] = {}

    def slow(index: int) -> np.ndarray:
        started = time.perf_counter()
        time.sleep(0.001)
        made[index] = time.perf_counter() - started
        return picture(index)

    with opened(lazy_dataset(slow), workers=workers, engine=engine, ahead=1) as iterator:
        iterator.reset(1)
        slots = make_slots(iterator)
        while iterator.next_into(slots) is not None:
            pass
        # The first batch is made by the reset; the last one is padded with its records.
        assert iterator.waited_seconds >= sum(made[index] for index in range(SIZE, COUNT))


def test_D3_no_more_is_made_ahead_than_there_is_memory_for():
    numbers: list[int] = []

    def counted(index: int) -> np.ndarray:
        numbers.append(index)
        return picture(index)

    with opened(lazy_dataset(counted), workers=4, ahead=2) as iterator:
        iterator.reset(1)
        slots = make_slots(iterator)
        for batch in range(3):
            deadline = time.monotonic() + HANG_S
            while len(numbers) < (batch + 2) * SIZE and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(0.01)
            assert sorted(numbers) == list(range((batch + 2) * SIZE))
            iterator.next_into(slots)


def broken(index: int) -> np.ndarray:
    if index in (12, 13):
        raise UserError(Diagnostic(f"x{index}.png: byte 7: damaged", None, "a", "b", "c"))
    return picture(index)


@pytest.mark.parametrize(("workers", "engine"), [(1, "threaded"), (4, "threaded"), (1, "naive")])
def test_an_error_in_a_record_is_raised_when_its_batch_is_due(workers, engine):
    with opened(lazy_dataset(broken), workers=workers, ahead=16, engine=engine) as iterator:
        slots = make_slots(iterator)
        iterator.reset(1)
        assert iterator.next_into(slots) is not None
        assert iterator.next_into(slots) is not None
        for _ in range(2):
            found = only_problem(iterator.next_into, slots)
            assert found.problem == "record 12 of data set 'pictures': x12.png: byte 7: damaged"
            assert (found.expected, found.got, found.hint) == ("a", "b", "c")
        assert len(read(iterator, 1, first=3)) == 2


def test_an_error_of_our_own_reaches_who_waits():
    def wrong(index: int) -> np.ndarray:
        raise InternalError(f"record {index}")

    with opened(lazy_dataset(wrong)) as iterator, pytest.raises(InternalError, match="record 0"):
        read(iterator, 1)


def test_a_record_of_another_size_is_refused_with_its_number():
    place = SourceLocation("c.yaml", 6, 3)
    with opened(lazy_dataset(lambda index: picture(index)[:, : 6 - (index == 8)])) as iterator:
        with pytest.raises(UserError, match="record 8 ") as caught:
            read(iterator, 1)
        (found,) = caught.value.diagnostics
        assert (found.expected, found.got) == ("[3, 6, 8]", "[3, 5, 8]")
        assert "resize" in found.hint
    crop = pipeline([(TRANSFORMS.get("center_crop").model_validate({"size": 7}), place)])
    with opened(lazy_dataset(pipeline=crop)) as iterator:
        with pytest.raises(UserError, match="record 0 ") as caught:
            read(iterator, 1)
        assert caught.value.diagnostics[0].place == place


def test_reset_and_close_in_the_middle_leave_nothing_behind():
    before = {*threading.enumerate()}
    for workers in (1, 4):
        with opened(lazy_dataset(pipeline=AUGMENTED), workers=workers, shuffle=True) as iterator:
            expected = read(iterator, 1)
            slots = make_slots(iterator)
            for taken in range(5):
                iterator.reset(2)
                for _ in range(taken):
                    iterator.next_into(slots)
                assert read(iterator, 1) == expected
            iterator.reset(3)
        iterator.close()
        with pytest.raises(InternalError, match="closed"):
            iterator.reset(1)
    assert {*threading.enumerate()} <= before


def test_iterators_may_share_their_memory():
    """The iterator that was reset last owns the memory; the other must be reset, and loses nothing
    else.
    """
    specs = staging_specs(INPUTS, SIZE)
    staging = Staging([{name: np.zeros(s.shape, s.dtype) for name, s in specs.items()}])
    datasets = lazy_dataset(pipeline=AUGMENTED), lazy_dataset(lambda index: picture(index + 50))
    expected = []
    for dataset in datasets:
        with opened(dataset) as iterator:
            expected.append(read(iterator, 1))
    train, test = (open_iterator(dataset, SIZE, workers=4, staging=staging) for dataset in datasets)
    slots = make_slots(train)
    for _ in range(10):
        train.reset(1)
        train.next_into(slots)
        assert read(test, 1) == expected[1]
        with pytest.raises(InternalError, match="reset"):
            train.next_into(slots)
        test.reset(1)
        assert read(train, 1) == expected[0]
    train.close()
    test.close()


def test_threads_end_with_the_last_reference_to_the_iterator():
    with opened(lazy_dataset(), workers=3) as iterator:
        staging = iterator._loader._memory.batches
    others = loaders()
    iterator = open_iterator(lazy_dataset(), SIZE, workers=3, staging=Staging(staging))
    iterator.reset(1)
    # Three that read and three that make rows.
    assert 1 <= len(loaders() - others) <= 6
    del iterator
    assert loaders() <= others


STUCK = """
import threading, sys
import numpy as np
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import LazyField
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.staging import Staging
started = threading.Event()
def stuck(index):
    started.set()
    threading.Event().wait()
data = LazyField(stuck, 8, (2,), "float32")
dataset = Dataset("stuck", {}, lazy={"data": data}, inputs={"data": TensorSpec((2,))})
staging = Staging([{"data": np.zeros((4, 2), np.float32)}])
iterator = open_iterator(dataset, 4, workers=2, staging=staging)
iterator.reset(1)
assert started.wait(600)
print("leaving")
"""


@pytest.mark.full
def test_a_stuck_reader_does_not_keep_the_process_alive():
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    result = subprocess.run(
        [sys.executable, "-c", STUCK],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "leaving\n", "")


@pytest.mark.parametrize(
    "change",
    [
        lambda slots: slots.pop("label"),
        lambda slots: slots.update(data=np.zeros((5, 3, 6, 9), np.float32)),
        lambda slots: slots.update(extra=np.zeros(5, np.float32)),
    ],
)
def test_staging_that_does_not_fit_is_refused(change):
    staging = {
        name: np.zeros(spec.shape, spec.dtype) for name, spec in staging_specs(INPUTS, 5).items()
    }
    change(staging)
    with pytest.raises(InternalError):
        open_iterator(lazy_dataset(), 5, staging=Staging([staging]))
    with pytest.raises(InternalError):
        open_iterator(lazy_dataset(), 5)
