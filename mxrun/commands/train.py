"""Implementation of `train`: a config is parsed and trained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mxrun.config.bundled import find_config
from mxrun.session.planning import parse_config
from mxrun.session.training import TrainingResult, TrainRequest, train_config
from mxrun.train.interruption import Interruption
from mxrun.train.observer import Observer

__all__ = ["Interruption", "TrainRequest", "TrainingResult", "train"]


def train(
    config: str | Path, overrides: Sequence[str], observer: Observer, request: TrainRequest
) -> TrainingResult:
    """Train as the config describes.

    Raises UserError for errors in config, data or run folder, before the first step, and Stopped
    when a signal requested an end and everything is saved.
    """
    parsed = parse_config(find_config(str(config)), overrides)
    return train_config(parsed, observer, request)
