"""Metrics against plain formulas, with padded rows, and without allocating."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.train.metric import METRICS, create_metric

SHAPES = [(7, 3), (64, 10), (5, 4, 6), (3, 5, 2, 4)]


def batch(shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities over axis 1, labels and weights, the last two rows padded."""
    generator = np.random.default_rng(seed)
    scores = np.exp(generator.normal(size=shape))
    output = (scores / scores.sum(1, keepdims=True)).astype(np.float32)
    label = generator.integers(0, shape[1], (shape[0], *shape[2:])).astype(np.int32)
    weight = np.ones(shape[0], np.float32)
    weight[-2:] = 0
    return label, output, weight


def expected(name: str, batches: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> float:
    """One prediction after the other."""
    values = []
    for label, output, weight in batches:
        for index in np.ndindex(label.shape):
            if weight[index[0]]:
                row = output[(index[0], slice(None), *index[1:])]
                if name == "accuracy":
                    values.append(float(row.argmax() == label[index]))
                else:
                    values.append(-math.log(float(row[label[index]]) + 1e-12))
    return sum(values) / len(values)


@pytest.mark.parametrize("name", list(METRICS))
@pytest.mark.parametrize("shape", SHAPES)
def test_mean_over_batches_leaves_padding_out(name: str, shape: tuple[int, ...]) -> None:
    metric = create_metric(name, TensorSpec(shape))
    batches = [batch(shape, seed) for seed in range(3)]
    for one in batches:
        metric.update(*one)
    assert metric.value() == pytest.approx(expected(name, batches), rel=1e-12)
    metric.reset()
    metric.update(*batches[0])
    assert metric.value() == pytest.approx(expected(name, batches[:1]), rel=1e-12)


def test_D1_padded_rows_never_enter() -> None:
    for name in METRICS:
        metric = create_metric(name, TensorSpec((64, 10)))
        label, output, weight = batch((64, 10), 1)
        weight[40:] = 0
        metric.update(label, output, weight)
        full = metric.value()
        output[40:] = 1 / 10
        label[40:] = 9
        metric.reset()
        metric.update(label, output, weight)
        assert metric.value() == full


def test_probability_zero_is_finite() -> None:
    metric = create_metric("cross_entropy", TensorSpec((1, 2)))
    metric.update(np.array([1]), np.array([[1, 0]], np.float32), np.ones(1, np.float32))
    assert metric.value() == pytest.approx(-math.log(1e-12))


def test_ties_go_to_the_first_class() -> None:
    metric = create_metric("accuracy", TensorSpec((2, 3)))
    output = np.array([[0.4, 0.4, 0.2]] * 2, np.float32)
    metric.update(np.array([0, 1]), output, np.ones(2, np.float32))
    assert metric.value() == 0.5


@pytest.mark.parametrize("name", list(METRICS))
@pytest.mark.parametrize("shape", [(12, 5), (4, 5, 6)])
def test_ignored_labels_never_enter(name: str, shape: tuple[int, ...]) -> None:
    label, output, weight = batch(shape, 2)
    metric = create_metric(name, TensorSpec(shape), ignored=7)
    label[0] = 7
    metric.update(label, output, weight)
    some = metric.value()
    label[0] = 0
    weight[0] = 0
    plain = create_metric(name, TensorSpec(shape))
    plain.update(label, output, weight)
    assert some == plain.value()


def test_a_row_may_hold_several_samples() -> None:
    label, output, weight = batch((12, 5), 3)
    weight[:] = np.repeat([1, 1, 0], 4)
    expect = create_metric("cross_entropy", TensorSpec((12, 5)))
    expect.update(label, output, weight)
    metric = create_metric("cross_entropy", TensorSpec((12, 5)), rows=3)
    metric.update(label, output, np.array([1, 1, 0], np.float32))
    assert metric.value() == expect.value()


def test_nothing_measured_is_nan() -> None:
    assert math.isnan(create_metric("accuracy", TensorSpec((2, 3))).value())


def test_float_labels_are_class_numbers() -> None:
    label, output, weight = batch((64, 10), 5)
    for name in METRICS:
        metric = create_metric(name, TensorSpec((64, 10)))
        metric.update(label.astype(np.float32), output, weight)
        assert metric.value() == pytest.approx(expected(name, [(label, output, weight)]))


@pytest.mark.parametrize("name", list(METRICS))
def test_updates_leave_nothing_allocated(name: str) -> None:
    metric = create_metric(name, TensorSpec((512, 1000)))
    label, output, weight = batch((512, 1000), 0)
    metric.update(label, output, weight)
    tracemalloc.start()
    try:
        metric.update(label, output, weight)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(10):
            metric.update(label, output, weight)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 512
    assert peak - before < 4096


def test_bad_output_and_unknown_name() -> None:
    with pytest.raises(UserError, match="class axis"):
        create_metric("accuracy", TensorSpec((8,)))
    with pytest.raises(UserError, match="accuracy"):
        create_metric("acuracy", TensorSpec((8, 2)))
