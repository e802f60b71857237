"""Every metric with parameters, and its formula, one prediction at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from measuring import Array, Batch

from mxrun.base.classification import Classification
from mxrun.base.regression import Regression

# Metrics of classes, of single probabilities and of numbers, each with its parameters.
CLASS_METRICS: list[tuple[str, dict[str, Any]]] = [
    ("accuracy", {}),
    ("top_k", {"k": 2}),
    ("cross_entropy", {}),
    ("perplexity", {}),
    ("bits_per_character", {}),
    ("f1", {"average": "macro"}),
    ("f1", {"average": "micro"}),
    ("precision", {"average": "macro"}),
    ("precision", {"average": "micro"}),
    ("recall", {"average": "macro"}),
    ("recall", {"average": "micro"}),
    ("fbeta", {"average": "macro", "beta": 0.5}),
    ("iou", {"average": "macro"}),
    ("iou", {"average": "micro"}),
    ("dice", {"average": "macro"}),
    ("balanced_accuracy", {}),
    ("mcc", {}),
    ("auc", {}),
    ("confusion_matrix", {}),
]
BINARY_METRICS: list[tuple[str, dict[str, Any]]] = [
    *((name, given) for name, given in CLASS_METRICS if name != "top_k"),
    *((name, {}) for name in ("f1", "precision", "recall", "fbeta", "iou", "dice")),
]
NUMBER_METRICS: list[tuple[str, dict[str, Any]]] = [
    (name, {}) for name in ("mse", "mae", "rmse", "r2", "pearson_correlation")
]


def counted(
    seen: Classification | Regression, batches: Sequence[Batch]
) -> Iterator[tuple[int, Array]]:
    """Label and distribution of each prediction that counts."""
    for label, output, weight in batches:
        if isinstance(seen, Regression):
            distributions = np.stack([1 - output.astype(np.float64), output], axis=1)
        else:
            distributions = output.reshape(seen.samples, seen.classes, seen.positions)
        for row, column in np.ndindex(label.shape):
            if weight[row]:
                yield int(label[row, column]), distributions[row, :, column].astype(np.float64)


def area(found: list[tuple[int, Array]], classes: int) -> float:
    """Compute the area under the ROC curve from all pairs of records."""
    areas = []
    for one in [1] if classes == 2 else range(classes):
        own = [row[one] for label, row in found if label == one]
        others = [row[one] for label, row in found if label != one]
        if own and others:
            order = np.sign(np.subtract.outer(own, others))
            areas.append(np.mean((order + 1) / 2))
    return float(np.mean(areas)) if areas else math.nan


def correlation(pairs: list[tuple[int, int]], classes: int) -> float:
    """Compute the correlation of two one-hot codes, summed over their columns."""
    labels, best = (np.eye(classes)[list(side)] for side in zip(*pairs, strict=True))
    labels, best = labels - labels.mean(0), best - best.mean(0)
    spread = math.sqrt((labels**2).sum() * (best**2).sum())
    return float((labels * best).sum() / spread) if spread else 0.0


def ratio(name: str, hits: int, labels: int, predicted: int, beta: float) -> float:
    """Compute precision, recall, their weighted harmonic mean, or the overlap, of one class."""
    if name == "iou":
        union = labels + predicted - hits
        return hits / union if union else 0.0
    precision = hits / predicted if predicted else 0.0
    recall = hits / labels if labels else 0.0
    if name in ("precision", "recall"):
        return precision if name == "precision" else recall
    if not hits:
        return 0.0
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall)


def score(
    name: str, pairs: list[tuple[int, int]], average: str, classes: int, beta: float
) -> float:
    """Compute a ratio of counts with an average."""
    counts = {
        one: (
            sum(label == best == one for label, best in pairs),
            sum(label == one for label, _ in pairs),
            sum(best == one for _, best in pairs),
        )
        for one in range(classes)
    }
    if average == "binary":
        return ratio(name, *counts[1], beta)
    if average == "micro":
        hits, labels, predicted = map(sum, zip(*counts.values(), strict=True))
        return ratio(name, hits, labels, predicted, beta)
    if average == "recalls":
        return float(np.mean([hits / labels for hits, labels, _ in counts.values() if labels]))
    return float(np.mean([ratio(name, *c, beta) for c in counts.values() if c[1] + c[2]]))


def f1(pairs: list[tuple[int, int]], average: str, classes: int) -> float:
    """Compute F1 from precision and recall."""
    scores = []
    for one in [1] if average == "binary" else range(classes):
        hits = sum(label == best == one for label, best in pairs)
        predicted = sum(best == one for _, best in pairs)
        labels = sum(label == one for label, _ in pairs)
        if hits:
            precision, recall = hits / predicted, hits / labels
            scores.append(2 * precision * recall / (precision + recall))
        elif predicted or labels:
            scores.append(0.0)
    if average == "micro":
        # Every wrong prediction is one false positive and one false negative.
        return sum(label == best for label, best in pairs) / len(pairs)
    return sum(scores) / len(scores)


def expected(
    name: str, given: dict[str, Any], seen: Classification | Regression, batches: Sequence[Batch]
) -> Any:
    """Compute one prediction at a time."""
    if name in ("r2", "pearson_correlation"):
        kept = [(output[w > 0], label[w > 0]) for label, output, w in batches]
        outputs, labels = (
            np.concatenate(part).astype(np.float64) for part in zip(*kept, strict=True)
        )
        outputs, labels = outputs.reshape(len(outputs), -1), labels.reshape(len(labels), -1)
        if name == "r2":
            return 1 - ((outputs - labels) ** 2).sum() / ((labels - labels.mean(0)) ** 2).sum()
        return np.corrcoef(outputs.ravel(), labels.ravel())[0, 1]
    if name in ("mse", "mae", "rmse"):
        rows = [
            (output[row].astype(np.float64) - label[row]).tolist()
            for label, output, weight in batches
            for row in np.flatnonzero(weight)
        ]
        errors = [error for row in rows for error in row]
        mean = sum(abs(e) if name == "mae" else e * e for e in errors) / len(errors)
        return math.sqrt(mean) if name == "rmse" else mean
    found = list(counted(seen, batches))
    if name == "accuracy":
        return sum(row.argmax() == label for label, row in found) / len(found)
    if name == "top_k":
        hits = (label in np.argsort(-row, kind="stable")[: given["k"]] for label, row in found)
        return sum(hits) / len(found)
    if name == "cross_entropy":
        return sum(-math.log(row[label] + 1e-12) for label, row in found) / len(found)
    if name == "bits_per_character":
        return sum(-math.log2(row[label] + 1e-12) for label, row in found) / len(found)
    if name == "perplexity":
        return math.exp(sum(-math.log(max(row[label], 1e-10)) for label, row in found) / len(found))
    pairs = [(label, int(row.argmax())) for label, row in found]
    classes = 2 if isinstance(seen, Regression) else seen.classes
    if name == "confusion_matrix":
        return [
            [pairs.count((down, across)) for across in range(classes)] for down in range(classes)
        ]
    if name == "auc":
        return area(found, classes)
    if name == "mcc":
        return correlation(pairs, classes)
    average = given.get("average", "recalls" if name == "balanced_accuracy" else "binary")
    if name == "f1":
        return f1(pairs, average, classes)
    return score(name, pairs, average, classes, given.get("beta", 1.0 if name == "dice" else 2.0))


def of_masks(name: str, average: str, seen: Regression, batches: Sequence[Batch]) -> float:
    """Compute a ratio of counts of pixels."""
    counts = np.zeros((seen.labels, 3), int)
    for label, output, weight in batches:
        for row in np.flatnonzero(weight):
            places = zip(label[row].flat, output[row].flat, strict=True)
            for place, (one, other) in enumerate(places):
                found = (one > 0.5 < other, one > 0.5, other > 0.5)
                counts[place // seen.positions] += np.array(found, int)
    if average == "micro":
        counts = counts.sum(0, keepdims=True)
    beta = 2.0 if name == "fbeta" else 1.0
    return float(np.mean([ratio(name, *map(int, each), beta) for each in counts if each[1:].any()]))
