"""Mean losses of MXNet's `*Output` operators, computed from their outputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mxrun.peers.wire import Array

# Smaller probabilities are clamped to this.
_TINY = float(np.finfo(np.float32).tiny)


def mean_loss(operator: str, attributes: Mapping[str, str], output: Array, label: Array) -> float:
    """Return the loss of one output, a mean over the valid labels.

    Raises ValueError for an operator that is not a supported loss.
    """
    if operator == "SoftmaxOutput":
        return _cross_entropy(attributes, output, label)
    if operator == "MakeLoss":
        return float(output.sum()) / len(output)
    wanted = label.reshape(output.shape)
    if operator == "LinearRegressionOutput":
        return float(np.square(output - wanted).mean() / 2)
    if operator == "MAERegressionOutput":
        return float(np.abs(output - wanted).mean())
    if operator == "LogisticRegressionOutput":
        chances = np.clip(output.astype(np.float64), _TINY, 1 - 1e-12)
        return float(-(wanted * np.log(chances) + (1 - wanted) * np.log1p(-chances)).mean())
    raise ValueError(f"the output {operator} is not a supported loss")


def _cross_entropy(attributes: Mapping[str, str], output: Array, label: Array) -> float:
    logarithms = np.log(np.maximum(output, _TINY))
    if label.shape == output.shape:
        return float(-(label * logarithms).sum() * output.shape[-1] / output.size)
    true = ("True", "true", "1")
    multiple = attributes.get("multi_output") in true
    if multiple:
        logarithms = np.moveaxis(logarithms, 1, -1)
    elif attributes.get("preserve_shape") not in true:
        logarithms = logarithms.reshape(len(output), -1)
    rows = logarithms.reshape(-1, logarithms.shape[-1])
    labels = label.reshape(-1).astype(np.int64)
    if attributes.get("use_ignore") in true:
        counted = labels != int(float(attributes.get("ignore_label", "-1")))
        rows, labels = rows[counted], labels[counted]
    chosen = rows[np.arange(len(labels)), labels]
    # MXNet applies no label smoothing under multi_output.
    smooth = 0.0 if multiple else float(attributes.get("smooth_alpha", "0"))
    others = smooth / (rows.shape[1] - 1)
    return float(-((1 - smooth - others) * chosen + others * rows.sum(axis=1)).mean())
