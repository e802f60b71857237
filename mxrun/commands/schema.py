"""Implementation of `schema`: the JSON Schema of config files, from the registries."""

from __future__ import annotations

from typing import Any

from mxrun.config import json_schema
from mxrun.config.json_schema import model_schema
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.operator.optimizer import OPTIMIZERS
from mxrun.operator.register import OPERATORS, list_operators
from mxrun.train.initializer import INITIALIZERS
from mxrun.train.metric_kind import METRICS
from mxrun.train.schedule import SCHEDULES


def schema() -> dict[str, Any]:
    """Return the JSON Schema of config files, with operators, data sets and optimisers."""
    return json_schema(
        operators={
            name: model_schema(OPERATORS.get(name).parameter_type) for name in list_operators()
        },
        datasets={name: model_schema(DATASETS.get(name).options) for name in DATASETS},
        optimizers={name: model_schema(OPTIMIZERS.get(name)) for name in OPTIMIZERS},
        schedules={name: model_schema(SCHEDULES.get(name)) for name in SCHEDULES},
        initializers={name: model_schema(INITIALIZERS.get(name)) for name in INITIALIZERS},
        metrics={name: model_schema(METRICS.get(name)) for name in METRICS},
        transforms={name: model_schema(TRANSFORMS.get(name)) for name in TRANSFORMS},
    )
