"""Metrics without machine code have the same values to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
from measuring import class_batch, kind_of, measure, number_batch

from mxrun.base.classification import Classification
from mxrun.base.regression import Regression
from mxrun.codegen.interpreted import interpreted

CLASSES: list[tuple[str, dict[str, Any]]] = [
    ("accuracy", {}),
    ("cross_entropy", {}),
    ("perplexity", {}),
    ("bits_per_character", {}),
    ("f1", {"average": "macro"}),
    ("confusion_matrix", {}),
]
SEEN: list[Classification | Regression] = [
    Classification(7, 3, 1),
    Classification(64, 10, 1),
    Classification(5, 4, 6),
    Classification(4, 250, 1),
    Regression(33, 1, True),
]


@pytest.mark.parametrize("seen", SEEN, ids=str)
@pytest.mark.parametrize(("name", "parameters"), CLASSES, ids=str)
def test_a_metric_is_the_same_without_machine_code(
    name: str, parameters: dict[str, Any], seen: Classification | Regression
) -> None:
    kind = kind_of(name, parameters)
    batches = [
        number_batch(seen, seed) if isinstance(seen, Regression) else class_batch(seen, seed)
        for seed in range(3)
    ]
    with interpreted():
        found = measure(kind, seen, batches)
    assert found == measure(kind, seen, batches)
