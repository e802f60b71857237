"""The default metrics, and the spellings of metrics in a config."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mxrun.base.classification import Likelihood
from mxrun.base.regression import Regression
from mxrun.train.classification_metrics import Accuracy, CrossEntropy
from mxrun.train.metric_kind import METRICS, MetricKind
from mxrun.train.predictions import Task
from mxrun.train.regression_metrics import MeanSquaredErrorKind


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
    kind, shared = METRICS.get(name), MetricKind.model_fields
    own = {key: kind.model_fields[key] for key in kind.model_fields if key not in shared}
    for key, field in own.items():
        for value in field.examples or ():
            yield f"{{{name}: {{{key}: {value}}}}}", kind(**{key: value})
