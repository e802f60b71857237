"""The metrics of configs: what is measured besides the loss, in training and evaluation."""

from __future__ import annotations

from collections.abc import Iterable

from mxrun.base.registry import Registry
from mxrun.base.regression import Regression
from mxrun.train.classification_metrics import (
    F1,
    Accuracy,
    ConfusionMatrix,
    CrossEntropy,
    Perplexity,
    TopK,
)
from mxrun.train.metric_kind import MetricKind
from mxrun.train.predictions import Seen
from mxrun.train.regression_metrics import (
    MeanAbsoluteErrorKind,
    MeanSquaredErrorKind,
    RootMeanSquaredErrorKind,
)

METRICS: Registry[type[MetricKind]] = Registry("metric")
METRICS.add("accuracy", Accuracy)
METRICS.add("top_k", TopK)
METRICS.add("cross_entropy", CrossEntropy)
METRICS.add("perplexity", Perplexity)
METRICS.add("f1", F1)
METRICS.add("confusion_matrix", ConfusionMatrix)
METRICS.add("mse", MeanSquaredErrorKind)
METRICS.add("mae", MeanAbsoluteErrorKind)
METRICS.add("rmse", RootMeanSquaredErrorKind)


def default_metrics(losses: Iterable[Seen]) -> tuple[MetricKind, ...]:
    """What is measured where a config does not say, for losses that see their tensors so.

    accuracy and cross_entropy of losses over classes, mse of losses over numbers, and where these
    are single probabilities accuracy too; nothing of what has no labels for predictions.
    """
    kinds: dict[str, MetricKind] = {}
    for seen in losses:
        usual: tuple[MetricKind, ...] = (Accuracy(), CrossEntropy())
        if isinstance(seen, Regression):
            usual = (Accuracy(), MeanSquaredErrorKind())
        kinds |= {kind.figure: kind for kind in usual if not kind.unfit(seen)}
    return tuple(kinds.values())


def fitting(losses: Iterable[Seen]) -> tuple[str, ...]:
    """The names of the metrics that fit some of these losses, given the right parameters."""
    seen = tuple(losses)
    return tuple(
        name for name in METRICS if any(not METRICS.get(name)().unfit(one) for one in seen)
    )
