"""The area under the ROC curve against the Mann-Whitney statistic, exact and from merged groups."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from measuring import HostMetrics, kind_of
from peer_scripts import run_script

from mxrun.base.classification import Classification
from mxrun.base.regression import Regression
from mxrun.train.auc import EXACT_IN_TRAINING
from mxrun.train.metric_kind import Metric, Metrics
from mxrun.train.ranked_groups import RankedGroups

Array = npt.NDArray[Any]

SKLEARN = """
import numpy as np
from sklearn.metrics import roc_auc_score

def answer(request):
    labels, scores = np.array(request["labels"]), np.array(request["scores"])
    return roc_auc_score(labels, scores, **request["keywords"])
"""


def rank_area(scores: Array, is_own: Array) -> float:
    """Compute the Mann-Whitney statistic of one class from mid-ranks, divided by all pairs."""
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    own = int(is_own.sum())
    return float((ranks[is_own].sum() - own * (own + 1) / 2) / (own * (len(scores) - own)))


def overlapping(count: int, seed: int = 0, share: float = 0.3) -> tuple[Array, Array]:
    """Return probabilities, and whether each is of the class; the densities overlap."""
    random = np.random.default_rng(seed)
    is_own = random.random(count) < share
    scores = 1 / (1 + np.exp(-(random.normal(size=count) + is_own)))
    return scores.astype("f4"), is_own


def ranked(
    scores: Array, is_own: Array, exact: int, is_fixed: bool = False, batch: int = 640
) -> RankedGroups:
    groups = RankedGroups(1, exact, is_fixed)
    for begin in range(0, len(scores), batch):
        part = slice(begin, begin + batch)
        own = is_own[None, part].astype("f8")
        groups.add(scores[None, part], own, np.ones_like(own))
    return groups


def metrics_of(seen: Classification | Regression, rows: int, is_saved: bool) -> Metrics:
    return Metrics([kind_of("auc", {})], seen, rows, is_saved=is_saved)


def added(metrics: Metrics, labels: Array, outputs: Array, rows: int) -> Metric:
    """Add records in batches of `rows`, the last one padded with garbage of weight 0."""
    batches = HostMetrics(metrics)
    for begin in range(0, len(labels), rows):
        label, output = (np.full((rows, *a.shape[1:]), np.nan, "f4") for a in (labels, outputs))
        count = len(labels[begin : begin + rows])
        label[:count], output[:count] = labels[begin : begin + rows], outputs[begin : begin + rows]
        label[count:] = 0
        weight = np.zeros(rows, "f4")
        weight[:count] = 1
        batches.update(label, output, weight)
    (metric,) = metrics.by_figure.values()
    return metric


@pytest.mark.parametrize("head", ["softmax", "logistic"])
@pytest.mark.parametrize("rate", [1.0, 1e-3, 1e-6])
def test_scores_however_close_are_ranked(head: str, rate: float) -> None:
    """Down to a few different float32 numbers around 0.5; most are ties at the smallest rate."""
    random = np.random.default_rng(5)
    is_own = random.random(5000) < 0.4
    scores = (0.5 + rate * 0.1 * (random.normal(size=5000) + is_own)).astype("f4")
    outputs = scores[:, None]
    seen: Classification | Regression = Regression(128, 1, True)
    if head == "softmax":
        outputs, seen = np.stack([1 - scores, scores], axis=1), Classification(128, 2, 1)
    metric = added(metrics_of(seen, 128, is_saved=False), is_own.astype("f4"), outputs, 128)
    want = rank_area(scores, is_own)
    assert 0.6 < want < 0.9
    assert metric.value() == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_ties_of_rounded_scores_count_half(seed: int) -> None:
    scores, is_own = overlapping(20_000, seed)
    scores = scores.round(1)
    for exact in (1_000_000, EXACT_IN_TRAINING, 300):
        areas = ranked(scores, is_own, exact).areas()
        assert areas == pytest.approx([rank_area(scores, is_own)], rel=1e-12)


def test_more_classes_are_one_against_the_rest() -> None:
    """Their mean is over those that have records: class 3 has none."""
    random = np.random.default_rng(2)
    labels = random.choice([0, 1, 2, 4], 3000)
    logits = random.normal(size=(3000, 5)) + 0.8 * np.eye(5)[labels]
    outputs = (np.exp(logits) / np.exp(logits).sum(1, keepdims=True)).astype("f4")
    metric = added(
        metrics_of(Classification(64, 5, 1), 64, is_saved=False), labels.astype("f4"), outputs, 64
    )
    want = [rank_area(outputs[:, one], labels == one) for one in (0, 1, 2, 4)]
    assert metric.value() == pytest.approx(np.mean(want), rel=1e-12)


def test_areas_are_those_of_scikit_learn() -> None:
    """On 100,000 records of two classes, and on 3,000 of four."""
    interpreter = os.environ.get("MXRUN_TORCH_PYTHON")
    if interpreter is None:
        pytest.skip("MXRUN_TORCH_PYTHON does not name a Python that has scikit-learn")
    scores, is_own = overlapping(100_000)
    random = np.random.default_rng(3)
    labels = random.integers(0, 4, 3000)
    outputs = random.dirichlet([1] * 4, 3000) + 0.3 * np.eye(4)[labels]
    outputs = (outputs / outputs.sum(1, keepdims=True)).astype("f4").astype("f8")
    outputs /= outputs.sum(1, keepdims=True)
    requests = [
        {"labels": is_own.tolist(), "scores": scores.tolist(), "keywords": {}},
        {
            "labels": labels.tolist(),
            "scores": outputs.tolist(),
            "keywords": {"multi_class": "ovr", "average": "macro"},
        },
    ]
    two, four = run_script(interpreter, SKLEARN, requests)
    assert ranked(scores, is_own, 1_000_000).areas() == pytest.approx([two], rel=1e-12)
    groups = RankedGroups(4, 1_000_000, is_fixed=False)
    own = np.eye(4)[labels].T.copy()
    groups.add(outputs.T, own, np.ones_like(own))
    assert np.mean(groups.areas()) == pytest.approx(four, rel=1e-9)


def orders(scores: Array, is_own: Array) -> Mapping[str, Array]:
    return {
        "random": np.arange(len(scores)),
        "ascending": np.argsort(scores, kind="stable"),
        "descending": np.argsort(-scores, kind="stable"),
        "by class": np.argsort(is_own, kind="stable"),
    }


@pytest.mark.parametrize("share", [0.3, 0.01])
@pytest.mark.parametrize(
    ("exact", "error"), [(EXACT_IN_TRAINING, 2e-3), (48_000, 1e-4), (1_000_000, 0)]
)
def test_the_error_of_merged_groups_is_small(exact: int, error: float, share: float) -> None:
    """In 200,000 predictions in any order, of a class that is frequent or rare."""
    scores, is_own = overlapping(200_000, 4, share)
    want = rank_area(scores, is_own)
    for name, order in orders(scores, is_own).items():
        groups = ranked(scores[order], is_own[order], exact, is_fixed=True, batch=5000)
        (area,) = groups.areas()
        assert abs(area - want) <= max(error, 1e-12), name
        assert groups.columns.nbytes <= 32 * (1 + exact * 4 // 3)


def test_the_order_and_the_batches_change_no_bit_of_an_exact_area() -> None:
    scores, is_own = overlapping(30_000)
    want = ranked(scores, is_own, 1_000_000).areas()
    for order in orders(scores, is_own).values():
        for batch in (7, 999, 30_000):
            groups = ranked(scores[order], is_own[order], 1_000_000, batch=batch)
            assert groups.areas() == want


def test_the_state_of_training_has_one_size_and_is_all_that_is_remembered() -> None:
    """Checkpoints hold it: an epoch that goes on from it has the bits of one that was not ended."""
    scores, is_own = overlapping(60_000)
    labels, outputs, seen = is_own.astype("f4"), scores[:, None], Regression(100, 1, True)
    whole = added(metrics_of(seen, 100, is_saved=True), labels, outputs, 100)
    first = added(metrics_of(seen, 100, is_saved=True), labels[:37_000], outputs[:37_000], 100)
    later = metrics_of(seen, 100, is_saved=True)
    (metric,) = later.by_figure.values()
    assert first.totals.shape == metric.totals.shape == whole.totals.shape
    metric.totals[...] = first.totals
    assert added(later, labels[37_000:], outputs[37_000:], 100).value() == whole.value()
    assert np.array_equal(metric.totals, whole.totals)
    # 256 KB, however many records there are.
    assert whole.totals.nbytes < 1 << 18
    metric.reset()
    assert not metric.totals.any()


def test_exact_areas_take_32_bytes_for_each_prediction() -> None:
    """Those of training take nothing beyond their sums, but for a moment while they are sorted."""
    scores, is_own = overlapping(100_000)
    labels, outputs, seen = is_own.astype("f4"), scores[:, None], Regression(1000, 1, True)
    for is_saved, limit in ((True, 1 << 16), (False, 2 * 32 * 100_000)):
        metrics = metrics_of(seen, 1000, is_saved)
        added(metrics, labels[:10_000], outputs[:10_000], 1000)
        tracemalloc.start()
        try:
            added(metrics, labels[10_000:], outputs[10_000:], 1000)
            after, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after < limit
        assert peak < (1 << 22 if is_saved else 3 * 32 * 100_000)


def test_ignored_and_padded_predictions_take_no_place() -> None:
    """A tenth counts: the exact limit is on predictions that do."""
    scores, is_own = overlapping(50_000)
    own = is_own[None].astype("f8")
    weights = np.zeros_like(own)
    weights[0, ::10] = 1
    groups = RankedGroups(1, 6000, is_fixed=True)
    groups.add(scores[None], own * weights, weights)
    want = rank_area(scores[::10], is_own[::10])
    assert groups.areas() == pytest.approx([want], rel=1e-12)


def test_one_class_has_no_area_and_one_unknown_score_makes_all_unknown() -> None:
    scores, is_own = overlapping(20_000)
    for exact in (1_000_000, 300):
        groups = ranked(scores[~is_own], is_own[~is_own], exact)
        assert np.isnan(groups.areas()).all()
    groups = ranked(scores, is_own, 300)
    groups.add(np.full((1, 1), np.nan), *np.full((2, 1, 1), np.nan))
    assert np.isnan(groups.areas()).all()
    groups.add(scores[None], is_own[None].astype("f8"), np.ones((1, len(scores))))
    assert np.isnan(groups.areas()).all()
