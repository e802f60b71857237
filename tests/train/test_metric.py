"""Metrics against plain formulas: padding, ignored labels, weights, splits, NaN, allocations."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from measuring import Batch, class_batch, create, kind_of, measure, number_batch
from metric_formulas import BINARY_METRICS, CLASS_METRICS, NUMBER_METRICS, expected, of_masks

from mxrun.base.classification import Classification, Likelihood
from mxrun.base.regression import Regression
from mxrun.executor.side_program import BatchTensors, host_tensor
from mxrun.train.metric import default_metrics, supported_metrics
from mxrun.train.metric_kind import METRICS, Figure, Metrics
from mxrun.train.predictions import LossPredictions

SEEN = [
    Classification(7, 3, 1),
    Classification(64, 10, 1),
    Classification(5, 4, 6),
    Classification(6, 2, 8),
]
BINARY = Regression(33, 1, True)
NUMBERS = [Regression(9, 1), Regression(8, 12), Regression(8, 3, True)]
# Every metric with something that it fits.
EVERY: list[tuple[str, dict[str, Any], Classification | Regression]] = [
    *((*metric, SEEN[1]) for metric in CLASS_METRICS),
    *((*metric, SEEN[2]) for metric in CLASS_METRICS),
    *((*metric, BINARY) for metric in BINARY_METRICS),
    *((*metric, NUMBERS[1]) for metric in NUMBER_METRICS),
]


def made(seen: Classification | Regression, seed: int) -> Batch:
    if isinstance(seen, Regression):
        return number_batch(seen, seed)
    return class_batch(seen, seed)


def same(got: Figure, want: Any) -> bool:
    return bool(got == want if isinstance(want, list) else got == pytest.approx(want, rel=1e-9))


@pytest.mark.parametrize(
    ("name", "given", "seen"),
    [
        *((*metric, seen) for metric in CLASS_METRICS for seen in SEEN),
        *((*metric, BINARY) for metric in BINARY_METRICS),
        *((*metric, seen) for metric in NUMBER_METRICS for seen in NUMBERS),
        ("f1", {"average": "binary"}, SEEN[3]),
        ("top_k", {"k": 5}, SEEN[1]),
    ],
)
def test_figures_over_batches_leave_padding_out(
    name: str, given: dict[str, Any], seen: Classification | Regression
) -> None:
    kind, batches = kind_of(name, given), [made(seen, seed) for seed in range(3)]
    assert same(measure(kind, seen, batches), expected(name, given, seen, batches))
    metric, metrics = create(kind, seen, len(batches[0][2]))
    for batch in batches:
        metrics.update(*batch)
    metric.reset()
    metrics.update(*batches[0])
    assert same(metric.value(), expected(name, given, seen, batches[:1]))


@pytest.mark.parametrize("name", ["iou", "dice", "f1", "precision", "recall", "fbeta"])
@pytest.mark.parametrize("average", ["binary", "macro", "micro"])
def test_masks_are_counted_by_pixels(name: str, average: str) -> None:
    """Of one mask, or over all; padded records do not count, and a NaN gives NaN."""
    seen = Regression(7, 12 if average == "binary" else 36, True, 12)
    kind, batches = (
        kind_of(name, {"average": average}),
        [number_batch(seen, seed) for seed in (0, 1)],
    )
    assert same(measure(kind, seen, batches), of_masks(name, average, seen, batches))
    label, output, weight = batches[0]
    output[-1] = np.nan
    assert same(measure(kind, seen, batches), of_masks(name, average, seen, batches))
    output[0, 3] = np.nan
    assert math.isnan(measure(kind, seen, [(label, output, weight)]))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "given", "seen"), EVERY)
def test_D1_padded_rows_never_enter_whatever_they_hold(
    name: str, given: dict[str, Any], seen: Classification | Regression
) -> None:
    label, output, weight = made(seen, 1)
    clean = measure(kind_of(name, given), seen, [(label, output, weight)])
    for garbage in (math.nan, math.inf, -math.inf, 1e38):
        output[-2:] = garbage
        label[-2:] = 1 << 20 if label.dtype == np.int32 else garbage
        assert measure(kind_of(name, given), seen, [(label, output, weight)]) == clean


@pytest.mark.parametrize(("name", "given", "seen"), EVERY)
def test_a_prediction_that_is_no_number_makes_the_figure_none(
    name: str, given: dict[str, Any], seen: Classification | Regression
) -> None:
    """In a confusion matrix, one count is None."""
    label, output, weight = made(seen, 1)
    output[1] = math.nan
    figure = measure(kind_of(name, given), seen, [made(seen, 2), (label, output, weight)])
    values = np.array(figure)
    assert np.isnan(values).any()
    assert name == "confusion_matrix" or np.isnan(values).all()


@pytest.mark.parametrize(("name", "given", "seen"), EVERY)
def test_nothing_measured_is_nan(
    name: str, given: dict[str, Any], seen: Classification | Regression
) -> None:
    metric, _ = create(kind_of(name, given), seen, seen.samples)
    assert name == "confusion_matrix" or math.isnan(np.array(metric.value()))
    label, output, weight = made(seen, 1)
    weight[:] = 0
    figure = measure(kind_of(name, given), seen, [(label, output, weight)])
    assert np.array_equal(figure, metric.value(), equal_nan=True)


@pytest.mark.parametrize(("name", "given", "seen"), EVERY)
def test_a_split_into_batches_changes_nothing(
    name: str, given: dict[str, Any], seen: Classification | Regression
) -> None:
    """In one batch, row by row, and in two parts with padding."""
    label, output, weight = made(seen, 4)
    weight[:] = 1
    whole = measure(kind_of(name, given), seen, [(label, output, weight)])
    sizes = (
        {"elements": seen.elements, "probabilities": seen.probabilities}
        if isinstance(seen, Regression)
        else {"classes": seen.classes, "positions": seen.positions}
    )
    rows = [
        (label[row : row + 1], output[row : row + 1], weight[row : row + 1])
        for row in range(seen.samples)
    ]
    single = measure(kind_of(name, given), type(seen)(samples=1, **sizes), rows)
    first, rest = weight.copy(), weight.copy()
    first[3:], rest[:3] = 0, 0
    parts = measure(kind_of(name, given), seen, [(label, output, first), (label, output, rest)])
    for figure in (single, parts):
        assert same(figure, whole)


@pytest.mark.parametrize(("name", "given"), CLASS_METRICS)
@pytest.mark.parametrize("ignored", [-1, 7])
@pytest.mark.parametrize("seen", [(12, 5, 1), (4, 5, 6)])
def test_ignored_labels_never_enter(
    name: str, given: dict[str, Any], ignored: int, seen: tuple[int, int, int]
) -> None:
    plain, ignoring = Classification(*seen), Classification(*seen, ignored=ignored)
    label, output, weight = class_batch(plain, 2)
    label[0] = ignored
    output[0] = math.nan
    some = measure(kind_of(name, given), ignoring, [(label, output, weight)])
    label[0] = 0
    weight[0] = 0
    assert some == measure(kind_of(name, given), plain, [(label, output, weight)])


@pytest.mark.parametrize(("name", "given", "seen"), EVERY)
def test_weights_count_rows_several_times(
    name: str, given: dict[str, Any], seen: Classification | Regression
) -> None:
    label, output, weight = made(seen, 6)
    twice = weight.copy()
    twice[1] = 2
    once = np.zeros_like(weight)
    once[1] = 1
    figure = measure(kind_of(name, given), seen, [(label, output, twice)])
    again = measure(kind_of(name, given), seen, [(label, output, weight), (label, output, once)])
    assert same(figure, again)


def test_a_row_may_hold_several_samples() -> None:
    seen = Classification(12, 5, 1)
    label, output, weight = class_batch(seen, 3)
    weight[:] = np.repeat([1, 1, 0], 4)
    for name, given in CLASS_METRICS:
        want = measure(kind_of(name, given), seen, [(label, output, weight)])
        rows = np.array([1, 1, 0], np.float32)
        assert measure(kind_of(name, given), seen, [(label, output, rows)]) == want


def test_probability_zero_is_finite() -> None:
    seen = Classification(1, 2, 1)
    batch = (np.array([[1]]), np.array([[1, 0]], np.float32), np.ones(1, np.float32))
    assert measure(kind_of("cross_entropy", {}), seen, [batch]) == pytest.approx(-math.log(1e-12))
    assert measure(kind_of("perplexity", {}), seen, [batch]) == pytest.approx(1e10)


@pytest.mark.parametrize(("loss", "expected"), [(2.0, math.exp(2)), (800.0, math.inf)])
def test_perplexity_of_a_loss_without_predictions(loss: float, expected: float) -> None:
    totals = np.array([3 * loss, 3])
    metrics = Metrics([kind_of("perplexity", {})], Likelihood(), 3, totals)
    assert metrics.by_figure["perplexity"].value() == pytest.approx(expected)


def test_ties_go_to_the_first_class() -> None:
    seen = Classification(3, 3, 1)
    output = np.array([[0.4, 0.2, 0.4]] * 3, np.float32)
    batch = (np.array([[0], [1], [2]]), output, np.ones(3, np.float32))
    assert measure(kind_of("accuracy", {}), seen, [batch]) == pytest.approx(1 / 3)
    assert measure(kind_of("top_k", {"k": 1}), seen, [batch]) == pytest.approx(1 / 3)
    assert measure(kind_of("top_k", {"k": 2}), seen, [batch]) == pytest.approx(2 / 3)
    assert measure(kind_of("top_k", {"k": 3}), seen, [batch]) == 1
    even = (np.array([[0.0], [1.0]]), np.full((2, 1), 0.5, np.float32), np.ones(2, np.float32))
    assert measure(kind_of("accuracy", {}), Regression(2, 1, True), [even]) == 0.5


def test_one_class_is_no_single_probability() -> None:
    seen = Classification(3, 1, 1)
    batch = (np.zeros((3, 1), np.int32), np.ones((3, 1), np.float32), np.ones(3, np.float32))
    assert measure(kind_of("accuracy", {}), seen, [batch]) == 1
    assert measure(kind_of("cross_entropy", {}), seen, [batch]) == pytest.approx(0, abs=1e-11)


def test_f1_without_hits_is_zero() -> None:
    seen = Classification(2, 2, 1)
    batch = (np.array([[1], [0]]), np.array([[1, 0], [1, 0]], np.float32), np.ones(2, np.float32))
    assert measure(kind_of("f1", {}), seen, [batch]) == 0
    assert measure(kind_of("f1", {"average": "macro"}), seen, [batch]) == pytest.approx(1 / 3)
    none = (np.zeros((2, 1)), batch[1], batch[2])
    assert measure(kind_of("f1", {}), seen, [none]) == 0
    assert measure(kind_of("f1", {"average": "macro"}), seen, [none]) == 1


def test_float_labels_are_class_numbers() -> None:
    label, output, weight = class_batch(SEEN[1], 5)
    for name, given in CLASS_METRICS:
        want = measure(kind_of(name, given), SEEN[1], [(label, output, weight)])
        floats = (label.astype(np.float32), output, weight)
        assert measure(kind_of(name, given), SEEN[1], [floats]) == want


@pytest.mark.parametrize(("name", "given"), CLASS_METRICS)
@pytest.mark.parametrize("seen", [Classification(12, 10, 1), Classification(4, 5, 6)])
def test_arrays_of_any_kind_hold_the_same(
    name: str, given: dict[str, Any], seen: Classification
) -> None:
    """Labels of other types, arrays with gaps, and others from batch to batch."""
    label, output, weight = class_batch(seen, 5)
    want = measure(kind_of(name, given), seen, [(label, output, weight)] * 5)
    gaps, wide = np.zeros((2, *output.shape), np.float32), output.astype(np.float64)
    gaps[1] = output
    batches = [
        (label.astype(np.int64), output.copy(), weight.copy()),
        (label.astype(np.uint8), gaps[1], weight),
        (np.repeat(label, 2, axis=1)[:, ::2], np.repeat(output, 2, axis=2)[..., ::2], weight),
        (label.astype(np.float64), wide, weight),
        (label, output, weight),
    ]
    assert same(measure(kind_of(name, given), seen, batches), want)


def test_the_best_of_many_classes_is_the_first_among_equals() -> None:
    """At any position, with any values after it; the first NaN precedes all numbers."""
    classes, generator = 5000, np.random.default_rng(8)
    seen = Classification(40, classes, 1)
    output = generator.integers(0, 400, (40, classes)).astype(np.float32) - 500
    output[:8] = -np.inf
    best = [0, 1, 255, 256, 257, 2048, 4998, 4999]
    for row, place in enumerate(best):
        output[row, place:] = -1
    output[8, 2000:2002], output[9, 3000], output[9, 10] = np.nan, np.nan, np.inf
    want = output.argmax(1)
    assert want[:10].tolist() == [*best, 2000, 3000]
    predictions = LossPredictions(seen, 40).classes
    predictions.request_arrays()
    batch = (want.astype(np.int32).reshape(40, 1), output, np.ones(40, np.float32))
    predictions.reader(BatchTensors(*map(host_tensor, batch)))()
    assert predictions.best.tolist() == want.tolist()
    assert np.isnan(predictions.doubt).tolist() == [row in (8, 9) for row in range(40)]


@pytest.mark.parametrize(("name", "given", "seen"), EVERY)
def test_F5_totals_are_all_that_is_remembered(
    name: str, given: dict[str, Any], seen: Classification | Regression
) -> None:
    batches = [made(seen, seed) for seed in range(3)]
    metric, metrics = create(kind_of(name, given), seen, seen.samples)
    for batch in batches[:2]:
        metrics.update(*batch)
    assert metric.totals.dtype == np.float64
    restored, others = create(kind_of(name, given), seen, seen.samples)
    restored.totals[...] = metric.totals
    others.update(*batches[2])
    assert restored.value() == measure(kind_of(name, given), seen, batches)


@pytest.mark.parametrize(
    ("name", "given", "seen"),
    [
        # auc is in test_ranked_groups.py: it has to remember scores.
        *((*metric, Classification(512, 200, 1)) for metric in CLASS_METRICS if metric[0] != "auc"),
        *((*metric, Classification(64, 40, 30)) for metric in CLASS_METRICS if metric[0] != "auc"),
        *((*metric, Regression(4096, 1, True)) for metric in BINARY_METRICS if metric[0] != "auc"),
        *((*metric, Regression(512, 64)) for metric in NUMBER_METRICS),
    ],
)
def test_updates_leave_nothing_allocated(
    name: str, given: dict[str, Any], seen: Classification | Regression
) -> None:
    batch = made(seen, 0)
    _, metrics = create(kind_of(name, given), seen, seen.samples)
    metrics.update(*batch)
    tracemalloc.start()
    try:
        metrics.update(*batch)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        for _ in range(10):
            metrics.update(*batch)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 512
    # numpy.add.at takes 6 KB of small objects, whatever the size of its arrays.
    assert peak - before < 8192


@pytest.mark.parametrize(
    ("name", "given", "seen", "reason"),
    [
        ("accuracy", {}, None, "has no labels"),
        ("mse", {}, None, "has no labels"),
        ("accuracy", {}, Classification(8, 3, 1, labelled=False), "do not name one class"),
        ("accuracy", {}, Regression(8, 2, True), "predicts numbers"),
        ("accuracy", {}, Regression(8, 1), "predicts numbers"),
        ("top_k", {"k": 1}, BINARY, "has one probability"),
        ("top_k", {}, SEEN[0], "has 3 classes, less than k = 5"),
        ("top_k", {}, Classification(8, 1, 1), "has 1 class, less than k = 5"),
        ("f1", {}, SEEN[0], "has 3 classes, not two"),
        ("f1", {}, Classification(8, 1, 1), "has 1 class, not two"),
        ("confusion_matrix", {}, Classification(8, 257, 1), "at most 256"),
        ("rmse", {}, SEEN[0], "predicts classes"),
        ("iou", {}, Regression(8, 24, True, 12), "has 2 labels, not one"),
        ("iou", {}, Regression(8, 24), "predicts numbers"),
    ],
)
def test_what_does_not_fit_says_why(
    name: str, given: dict[str, Any], seen: Classification | Regression | None, reason: str
) -> None:
    assert reason in kind_of(name, given).why_unsupported(seen)


def test_defaults_and_fitting_metrics_of_losses() -> None:
    def figures(*seen: Classification | Regression | None) -> list[str]:
        return [kind.figure for kind in default_metrics(seen)]

    assert figures(SEEN[0]) == ["accuracy", "cross_entropy"]
    assert figures(NUMBERS[0]) == ["mse"]
    assert figures(BINARY) == ["accuracy", "mse"]
    assert figures(None, Classification(8, 3, 1, labelled=False)) == []
    assert figures(NUMBERS[0], SEEN[0]) == ["mse", "accuracy", "cross_entropy"]
    assert supported_metrics([NUMBERS[0]]) == tuple(sorted(name for name, _ in NUMBER_METRICS))
    averaged = {"f1", "fbeta", "precision", "recall", "iou", "dice"}
    with_example = {f"{{{name}: {{average: macro}}}}" for name in averaged}
    absent = averaged | {"binary_accuracy"}
    assert {*supported_metrics([SEEN[1], NUMBERS[0]])} == (({*METRICS} | with_example) - absent)
    assert "binary_accuracy" in supported_metrics([BINARY])


def test_figures_have_names_of_their_own() -> None:
    every = [*CLASS_METRICS, *NUMBER_METRICS, ("f1", {}), ("top_k", {})]
    names = [kind_of(name, given).figure for name, given in every]
    assert len(set(names)) == len(names)
    assert {"top_2_accuracy", "top_5_accuracy", "f1", "f1_macro", "f1_micro"} < set(names)
