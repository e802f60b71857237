"""mixup: pairs of rows, one lambda a batch, and the labels that it needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from transformed import make

from mxrun.base.errors import SourceLocation, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field
from mxrun.io.loading.open import open_iterator
from mxrun.io.loading.staging import Staging, staging_specs
from mxrun.io.transforms.mixing import mix_batch
from mxrun.io.transforms.pipeline import pipeline

COUNT, SIZE, CLASSES = 10, 4, 3
PLACE = SourceLocation("c.yaml", 4, 2)


def steps(*, alpha: float = 0.4):
    one_hot, mixup = make("one_hot", classes=CLASSES), make("mixup", alpha=alpha)
    return pipeline([(one_hot, None), (mixup, PLACE)])


def dataset() -> Dataset:
    data = np.arange(COUNT * 6, dtype=np.float32).reshape(COUNT, 6)
    label = (np.arange(COUNT) % CLASSES).astype(np.int32)
    inputs = {"data": TensorSpec((6,)), "label": TensorSpec((CLASSES,))}
    fields = {"data": Field(data), "label": Field(label)}
    return Dataset("rows", fields, inputs=inputs, pipeline=steps())


def epoch(records: Dataset, number: int, workers: int = 1):
    specs = staging_specs(records.inputs, SIZE)
    staged = [{name: np.empty(spec.shape, spec.dtype) for name, spec in specs.items()}] * 1
    iterator = open_iterator(records, SIZE, seed=3, workers=workers, staging=Staging(staged))
    try:
        iterator.reset(number)
        slots = {name: np.empty(s.shape, s.dtype) for name, s in iterator.specs.items()}
        found = []
        while (batch := iterator.next_into(slots)) is not None:
            copies = {name: slot.copy() for name, slot in slots.items()}
            found.append((batch.valid, batch.indices.copy(), copies))
        return found
    finally:
        iterator.close()


def test_rows_of_a_batch_are_mixed_in_pairs():
    records = dataset()
    data, label = records.fields["data"].records, records.fields["label"].records
    hot = np.eye(CLASSES, dtype=np.float32)[label]
    parts = set()
    for valid, indices, rows in epoch(records, 1):
        pairs = indices[:valid], indices[:valid][::-1]
        (part,) = np.unique(
            np.round(
                (rows["data"][0, 0] - data[pairs[1]][0, 0])
                / (data[pairs[0]] - data[pairs[1]])[0, 0],
                5,
            )
        )
        parts.add(float(part))
        for name, values in (("data", data), ("label", hot)):
            expected = part * values[pairs[0]] + (1 - part) * values[pairs[1]]
            assert np.abs(rows[name][:valid] - expected).max() < 1e-3
        assert np.allclose(rows["label"][:valid].sum(1), 1)
        # Padding is not mixed.
        assert np.array_equal(rows["data"][valid:], data[indices[valid:]])
    assert len(parts) == 3
    assert all(0 < part < 1 for part in parts)


def test_a_batch_is_the_same_from_any_number_of_workers_and_differs_between_epochs():
    def content(number: int, workers: int = 1):
        return [
            [slot.tobytes() for slot in rows.values()]
            for _, _, rows in epoch(dataset(), number, workers)
        ]

    assert content(1) == content(1, workers=3) == content(1)
    assert content(1) != content(2)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_lambda_has_the_distribution_beta(alpha):
    mixing = steps(alpha=alpha)
    drawn = []
    for batch in range(4000):
        rows = {"data": np.array([[1.0], [0.0]], np.float32)}
        mix_batch(mixing, 1, 1, batch, rows, 2)
        assert rows["data"].sum() == pytest.approx(1)
        drawn.append(float(rows["data"][0, 0]))
    variance = 1 / (4 * (2 * alpha + 1))
    assert abs(np.mean(drawn) - 0.5) < 4 * np.sqrt(variance / 4000)
    assert np.var(drawn) == pytest.approx(variance, rel=0.1)
    uniform = np.random.default_rng(0).beta(alpha, alpha, 200_000)
    for share in (0.05, 0.25, 0.4):
        assert np.quantile(drawn, share) == pytest.approx(np.quantile(uniform, share), abs=0.03)


def test_an_odd_row_and_rows_behind_the_valid_ones_stay():
    rows = {"data": np.arange(7, dtype=np.float32).reshape(7, 1)}
    mix_batch(steps(), 1, 1, 0, rows, 5)
    assert rows["data"][2] == 2
    assert rows["data"][5:].ravel().tolist() == [5, 6]
    assert rows["data"][0] + rows["data"][4] == pytest.approx(4)


def test_evaluation_mixes_nothing():
    assert [step.transform.name for step in steps().evaluation().steps] == ["one_hot"]


def test_labels_that_are_class_numbers_are_refused_with_a_hint():
    records = replace(dataset(), pipeline=pipeline([(make("mixup"), PLACE)]))
    inputs = {"data": TensorSpec((6,)), "label": TensorSpec((), "int32")}
    (found,) = records.check(inputs, {}, records.pipeline)
    assert found.place == PLACE
    assert "mixup: the rows of 'label' cannot be mixed" in found.problem
    assert "one_hot" in found.hint
    assert records.check(records.inputs, {}, steps()) == ()


def test_transforms_of_records_come_before_those_of_batches():
    with pytest.raises(UserError, match="flip transforms records") as caught:
        pipeline([(make("mixup"), None), (make("flip"), PLACE)])
    assert caught.value.diagnostics[0].place == PLACE
