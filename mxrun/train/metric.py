"""The metrics of configs: what is measured besides the loss, in training and evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    """The metrics that fit some of these losses, as a config writes them: by their names or, where
    their parameters' defaults do not fit, with an example's.
    """
    seen = tuple(losses)
    found = []
    for name in METRICS:
        for form, kind in ((name, METRICS.get(name)()), *_examples(name)):
            if any(not kind.unfit(one) for one in seen):
                found.append(form)
                break
    return tuple(found)


def forms() -> tuple[str, ...]:
    """Every metric as a config writes it; those with parameters with an example's."""
    return tuple(next((form for form, _ in _examples(name)), name) for name in METRICS)


def _examples(name: str) -> Iterator[tuple[str, MetricKind]]:
    """A metric with each example of its parameters, as a config writes it."""
    kind = METRICS.get(name)
    for key, field in kind.model_fields.items():
        for value in field.examples or ():
            yield f"{{{name}: {{{key}: {value}}}}}", kind(**{key: value})
