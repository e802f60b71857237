"""Advice for training that waits for its data."""

from __future__ import annotations

import os

from mxrun.config.schema import Data

# Share of the training time spent waiting for data from which advice is given.
_LONG_WAIT = 0.05


def wait_advice(share: float, data: Data) -> str:
    """Return how to shorten the waits for data; empty if they take little of the time.

    share: fraction of the training time spent waiting. More loader threads help while there are
    cores without one; then only less work per record does.
    """
    if share < _LONG_WAIT:
        return ""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if data.workers < cores:
        return f"set data.workers to {cores}, the number of cores (now {data.workers})"
    if data.train.transforms:
        return (
            "every core reads records: store images at the size that the network reads, use fewer "
            "transforms, or save the transformed records as .npz"
        )
    return (
        "every core reads records: store images at the size that the network reads, or save the "
        "records as .npz"
    )
