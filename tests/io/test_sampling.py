"""Order of records: shuffles within a window, and classes drawn equally often."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from batches import make_dataset, make_slots
from layer_configs import classifier, config_file, network_text
from training import run_training

from mxrun.base.errors import UserError
from mxrun.config import parse
from mxrun.frontend import build
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.loading.open import balanced, open_iterator
from mxrun.io.loading.order import BatchOrder
from mxrun.io.loading.sampling import Balanced, Shuffle, ShuffleWindow, occurrences, record_order

CLASSES = np.repeat([0, 1, 5], [70, 25, 6])
COUNT = len(CLASSES)


@pytest.mark.parametrize("size", [1, 2, 10, 1000])
def test_a_window_moves_no_record_by_more_than_its_size(size):
    found = set()
    for epoch in range(1, 30):
        order = record_order(ShuffleWindow(size), 3, epoch, COUNT)
        assert sorted(order) == list(range(COUNT))
        assert np.abs(order - np.arange(COUNT)).max() <= size
        found.add(order.tobytes())
    assert len(found) == (1 if size == 1 else 29)


def test_a_large_window_mixes_all_records():
    """The mean place of each record is that of the middle; without a shuffle it is its own."""
    places = [np.argsort(record_order(ShuffleWindow(10**9), 0, epoch, 50)) for epoch in range(400)]
    assert np.abs(np.mean(places, axis=0) - 24.5).max() < 5


def test_orders_are_functions_of_seed_epoch_and_window():
    for shuffle in (True, ShuffleWindow(5), ShuffleWindow(6), Balanced(CLASSES)):
        same = record_order(shuffle, 1, 2, COUNT)
        assert same.tobytes() == record_order(shuffle, 1, 2, COUNT).tobytes()
        for seed, epoch in ((2, 2), (1, 3)):
            assert same.tobytes() != record_order(shuffle, seed, epoch, COUNT).tobytes()
    assert (
        record_order(ShuffleWindow(5), 1, 2, 9).tolist()
        != record_order(ShuffleWindow(9), 1, 2, 9).tolist()
    )


@pytest.mark.parametrize("epoch", range(1, 8))
def test_balanced_sampling_draws_every_class_equally_often(epoch):
    order = record_order(Balanced(CLASSES), 7, epoch, COUNT)
    assert len(order) == COUNT
    drawn = np.bincount(CLASSES[order])[[0, 1, 5]]
    assert sorted(drawn) == [COUNT // 3, COUNT // 3 + 1, COUNT // 3 + 1]
    # Within a class, no record is drawn twice more often than another.
    for name in (0, 1, 5):
        times = np.bincount(order, minlength=COUNT)[name == CLASSES]
        assert times.max() - times.min() <= 1
    # In random order: no class has a half of the epoch for itself.
    half = np.bincount(CLASSES[order[: COUNT // 2]], minlength=6)[[0, 1, 5]]
    assert half.min() > 5


def test_occurrences_count_the_draws_before():
    assert occurrences(np.array([3, 1, 3, 3, 2, 1])).tolist() == [0, 0, 1, 2, 0, 1]


@pytest.mark.parametrize("kind", ["pad", "discard", "roll_over"])
def test_a_record_that_is_drawn_again_has_other_random_numbers(kind):
    order = BatchOrder(COUNT, 7, Balanced(CLASSES), seed=2, last_batch=kind)
    drawn: dict[tuple[int, int], int] = {}
    for epoch in (1, 2, 3):
        indices, draws = order.indices(epoch), order.draw_epochs(epoch)
        assert indices.shape == draws.shape
        rows = [order.valid(part) for part in range(order.batches(epoch))]
        valid = sum(rows) if kind == "pad" else len(indices)
        for key in zip(indices[:valid].tolist(), draws[:valid].tolist(), strict=True):
            drawn[key] = drawn.get(key, 0) + 1
    assert set(drawn.values()) == {1}
    assert len({draw for _, draw in drawn}) > 3


@pytest.mark.parametrize("shuffle", [ShuffleWindow(20), Balanced(np.arange(1000) % 7)])
def test_an_epoch_goes_on_in_its_middle(shuffle: Shuffle):
    def batches(first: int) -> list[tuple[list[int], bytes]]:
        iterator = open_iterator(make_dataset(), 64, shuffle=shuffle, seed=4)
        slots, found = make_slots(iterator), []
        iterator.reset(3, first)
        while (batch := iterator.next_into(slots)) is not None:
            found.append((batch.indices.tolist(), slots["data"].tobytes()))
        return found

    assert batches(5) == batches(0)[5:]


def test_classes_are_needed_for_balanced_sampling():
    dataset = Dataset("numbers", {"data": Field(np.zeros((4, 2), np.float32))})
    with pytest.raises(UserError, match="'numbers' has no classes"):
        balanced(dataset)
    labelled = make_dataset(10)
    iterator = open_iterator(labelled, 5, shuffle=balanced(labelled))
    assert iterator.batches(1) == 2


CONFIG = (
    network_text(classifier(10), inputs="{data: [1, 8, 8], label: []}")
    + "train: {epochs: 2, optimizer: sgd, metrics: [accuracy]}\ndata:\n  batch_size: 100\n"
)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("shuffle: {window: 0}", ("shuffle", "window", ">= 1")),
        ("shuffle: yes", ("shuffle", "true")),
        ("shuffle: {windows: 3}", ("windows", "window")),
        ("sampling: even", ("sampling", "balanced")),
        ("sampling: balanced, shuffle: {window: 9}", ("balanced", "window")),
        ("num_parts: 3, part_index: 3", ("part 3", "0 to 2")),
        ("part_index: 1", ("part 1", "num_parts")),
    ],
)
def test_wrong_sections_are_refused(tmp_path: Path, section: str, words: tuple[str, ...]):
    path = config_file(tmp_path, CONFIG + f"  train: {{dataset: digits, {section}}}\n")
    with pytest.raises(UserError) as caught:
        build(parse(path))
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert all(found.place for found in caught.value.diagnostics)


def test_evaluation_has_no_sampling(tmp_path: Path):
    path = config_file(
        tmp_path,
        CONFIG + "  train: {dataset: digits}\n  eval: {dataset: digits, sampling: balanced}\n",
    )
    with pytest.raises(UserError, match=r"data\.eval has no sampling"):
        build(parse(path))


@pytest.mark.parametrize("section", ["shuffle: {window: 300}", "sampling: balanced"])
def test_configs_train_with_them(empty_folder: Path, section: str):
    Path("net.yaml").write_text(CONFIG + f"  train: {{dataset: digits, {section}}}\n")
    assert run_training()["steps"] == 2 * 15


@pytest.mark.parametrize("section", ["shuffle: {window: 300}", "sampling: balanced"])
def test_synthetic_records_take_the_place_of_missing_ones(empty_folder: Path, section: str):
    Path("net.yaml").write_text(CONFIG + f"  train: {{dataset: npz, {section}}}\n")
    assert run_training("train.max_steps=2")["synthetic_data"]
