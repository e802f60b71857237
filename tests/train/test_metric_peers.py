"""Metrics compared with MXNet's metric classes, over several batches of one size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from measuring import Batch, class_batch, kind_of, measure, number_batch
from oracles.peer import MXNet
from peer_scripts import run_in

from mxrun.base.classification import Classification
from mxrun.base.regression import Regression

SCRIPT = """
import warnings
import mxnet as mx

def answer(request):
    metric = mx.metric.create(request["name"], **request["keywords"])
    for label, output in request["batches"]:
        metric.update([mx.nd.array(label)], [mx.nd.array(output)])
    return float(metric.get()[1])
"""

TEN, TWO, IGNORING = (
    Classification(50, 10, 1),
    Classification(64, 2, 1),
    Classification(50, 10, 1, ignored=3),
)
# The metric of mxrun, its predictions, MXNet's name and keywords, and the number of batches:
# MXNet's RMSE is the mean over the batches, that of mxrun is over all records.
CASES: list[tuple[str, dict[str, Any], Classification | Regression, str, dict[str, Any], int]] = [
    ("accuracy", {}, TEN, "acc", {}, 4),
    ("top_k", {"k": 3}, TEN, "top_k_accuracy", {"top_k": 3}, 4),
    ("cross_entropy", {}, TEN, "ce", {}, 4),
    ("perplexity", {}, TEN, "perplexity", {"ignore_label": None}, 4),
    ("perplexity", {}, IGNORING, "perplexity", {"ignore_label": 3}, 4),
    ("f1", {}, TWO, "f1", {"average": "micro"}, 4),
    ("mse", {}, Regression(40, 1), "mse", {}, 4),
    ("mse", {}, Regression(40, 6), "mse", {}, 4),
    ("mae", {}, Regression(40, 6), "mae", {}, 4),
    ("rmse", {}, Regression(40, 6), "rmse", {}, 1),
]


def batches_of(seen: Classification | Regression, count: int) -> list[Batch]:
    made = []
    for seed in range(count):
        if isinstance(seen, Regression):
            label, output, weight = number_batch(seen, seed)
        else:
            label, output, weight = class_batch(seen, seed)
            label, output = label[:, 0], output[:, :, 0]
        weight[:] = 1
        made.append((label, output, weight))
    return made


def test_metrics_are_mxnets() -> None:
    data = [batches_of(case[2], case[5]) for case in CASES]
    requests = [
        {
            "name": name,
            "keywords": keywords,
            "batches": [[label.tolist(), output.tolist()] for label, output, _ in batches],
        }
        for (*_, name, keywords, _), batches in zip(CASES, data, strict=True)
    ]
    answers = run_in(MXNet, SCRIPT, requests)
    for (name, given, seen, *_), batches, answer in zip(CASES, data, answers, strict=True):
        got = measure(kind_of(name, given), seen, batches)
        assert got == pytest.approx(answer, rel=1e-5), name
        assert isinstance(got, float)
        assert math.isfinite(got)
        assert np.float32(got) != 0
