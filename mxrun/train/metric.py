"""Registry of metrics, the default metrics, and their spellings in a config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mxrun.base.classification import Likelihood
from mxrun.base.registry import Registry
from mxrun.base.regression import Regression
from mxrun.train.auc import AreaUnderCurve
from mxrun.train.classification_metrics import (
    Accuracy,
    BitsPerCharacter,
    ConfusionMatrix,
    CrossEntropy,
    Perplexity,
    TopK,
)
from mxrun.train.count_metrics import (
    F1,
    BalancedAccuracy,
    FBeta,
    MatthewsCorrelation,
    PositivePredictiveValue,
    Sensitivity,
)
from mxrun.train.metric_kind import MetricKind
from mxrun.train.predictions import Task
from mxrun.train.regression_metrics import (
    BinaryAccuracyKind,
    DeterminationKind,
    MeanAbsoluteErrorKind,
    MeanSquaredErrorKind,
    PearsonKind,
    RootMeanSquaredErrorKind,
)

METRICS: Registry[type[MetricKind]] = Registry("metric")
METRICS.add("accuracy", Accuracy)
METRICS.add("top_k", TopK)
METRICS.add("cross_entropy", CrossEntropy)
METRICS.add("perplexity", Perplexity)
METRICS.add("bits_per_character", BitsPerCharacter)
METRICS.add("precision", PositivePredictiveValue)
METRICS.add("recall", Sensitivity)
METRICS.add("f1", F1)
METRICS.add("fbeta", FBeta)
METRICS.add("balanced_accuracy", BalancedAccuracy)
METRICS.add("mcc", MatthewsCorrelation)
METRICS.add("auc", AreaUnderCurve)
METRICS.add("confusion_matrix", ConfusionMatrix)
METRICS.add("mse", MeanSquaredErrorKind)
METRICS.add("mae", MeanAbsoluteErrorKind)
METRICS.add("rmse", RootMeanSquaredErrorKind)
METRICS.add("r2", DeterminationKind)
METRICS.add("pearson_correlation", PearsonKind)
METRICS.add("binary_accuracy", BinaryAccuracyKind)


def default_metrics(losses: Iterable[Task]) -> tuple[MetricKind, ...]:
    """Return the metrics used if a config names none, given the views of its losses.

    These are accuracy and cross_entropy for losses over classes, and mse for losses over numbers,
    with accuracy if these are single probabilities. A loss without labels for its predictions, or
    without predictions, has none.
    """
    kinds: dict[str, MetricKind] = {}
    for task in losses:
        usual: tuple[MetricKind, ...] = (Accuracy(), CrossEntropy())
        if isinstance(task, Regression):
            usual = (Accuracy(), MeanSquaredErrorKind())
        if not isinstance(task, Likelihood):
            kinds |= {kind.figure: kind for kind in usual if not kind.why_unsupported(task)}
    return tuple(kinds.values())


def supported_metrics(losses: Iterable[Task]) -> tuple[str, ...]:
    """Return the metrics that support some of these losses, as written in a config.

    A metric whose default parameters are not supported is written with an example's.
    """
    tasks = tuple(losses)
    found = []
    for name in METRICS:
        for form, kind in ((name, METRICS.get(name)()), *_examples(name)):
            if any(not kind.why_unsupported(task) for task in tasks):
                found.append(form)
                break
    return tuple(found)


def why_undefined(figure: str) -> str:
    """Return what makes a figure undefined, as the end of a sentence; empty if nothing is known.

    figure: the name in output, which with several losses begins with that of the loss.
    """
    name = figure.rpartition(".")[2]
    condition = METRICS.get(name).undefined if name in METRICS else ""
    return f"it is undefined {condition}" if condition else ""


def config_forms() -> tuple[str, ...]:
    """Return every metric as written in a config; those with parameters with an example."""
    return tuple(next((form for form, _ in _examples(name)), name) for name in METRICS)


def _examples(name: str) -> Iterator[tuple[str, MetricKind]]:
    """Yield a metric with each example of its parameters, as written in a config."""
    kind = METRICS.get(name)
    for key, field in kind.model_fields.items():
        for value in field.examples or ():
            yield f"{{{name}: {{{key}: {value}}}}}", kind(**{key: value})
