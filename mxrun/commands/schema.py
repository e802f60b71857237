"""Implementation of `schema`: the JSON Schema of config files, from the registries."""

from __future__ import annotations

from typing import Any

from mxrun import library
from mxrun.commands.ops import operator_names
from mxrun.config import json_schema
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.operator.optimizer import OPTIMIZERS
from mxrun.operator.register import OPERATORS
from mxrun.train.initializer import INITIALIZERS
from mxrun.train.metric_kind import METRICS
from mxrun.train.schedule import SCHEDULES


def schema() -> dict[str, Any]:
    """Return the JSON Schema of config files, with operators, data sets and optimisers."""
    library.load()
    return json_schema(
        operators={
            name: OPERATORS.get(name).parameter_type.model_json_schema()
            for name in operator_names()
        },
        datasets={name: DATASETS.get(name).options.model_json_schema() for name in DATASETS},
        optimizers={name: OPTIMIZERS.get(name).model_json_schema() for name in OPTIMIZERS},
        schedules={name: SCHEDULES.get(name).model_json_schema() for name in SCHEDULES},
        initializers={name: INITIALIZERS.get(name).model_json_schema() for name in INITIALIZERS},
        metrics={name: METRICS.get(name).model_json_schema() for name in METRICS},
        transforms={name: TRANSFORMS.get(name).model_json_schema() for name in TRANSFORMS},
    )
