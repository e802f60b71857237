"""Tables of series for tests, and the data set that reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets, request_dataset

START = datetime(2024, 1, 1)


def wave(steps: int, season: int = 12, seed: int = 0) -> npt.NDArray[np.float64]:
    """Return a season, a trend and noise, rounded as a file has them."""
    at, draws = np.arange(steps), np.random.default_rng(seed)
    values = 50 + 10 * np.sin(2 * np.pi * at / season) + at / 20 + draws.normal(0, 0.5, steps)
    return np.round(values, 3)


def hours(steps: int, first: int = 0) -> list[str]:
    """Return time stamps an hour apart."""
    return [(START + timedelta(hours=first + at)).isoformat(" ", "minutes") for at in range(steps)]


def write_table(path: Path | str, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Write columns by name; None is missing."""
    lines = [",".join(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append(",".join("" if each is None else str(each) for each in row))
    Path(path).write_text("\n".join(lines) + "\n")
    return Path(path)


def open_series(
    path: Path | str,
    splits: Sequence[Any] = ("train",),
    inputs: Mapping[str, TensorSpec] | None = None,
    **options: object,
) -> dict[str, Dataset]:
    """Open one or two splits, with the scaling of the first one for both."""
    given = {"path": str(path), **options}
    requests = {
        role: request_dataset("series", given, split, role=role)
        for role, split in zip(("train", "eval"), splits, strict=False)
    }
    opened = open_datasets(requests, inputs or {})
    return dict(zip(map(str, splits), opened.values(), strict=True))
