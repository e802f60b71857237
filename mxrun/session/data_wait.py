"""Advice for training that waits for its data."""

from __future__ import annotations

import os

from mxrun.config.schema import Data

# Share of the training time spent waiting for data from which advice is given.
_LONG_WAIT = 0.05


def wait_advice(share: float, data: Data, reads_files: bool) -> str:
    """Return how to shorten the waits for data; empty if they are short or cannot be shortened.

    share: fraction of the training time spent waiting. reads_files: whether records are read from
    files during training, instead of once before it. More loader threads help while there are cores
    without one; then only less work per record does.
    """
    has_transforms = bool(data.train.transforms)
    if share < _LONG_WAIT or not (reads_files or has_transforms):
        return ""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    if data.workers < cores:
        return f"set data.workers to {cores}, the number of cores (now {data.workers})"
    saved = "the transformed records" if has_transforms else "the records"
    cures = [
        *(["store images at the size that the network reads"] if reads_files else []),
        *(["use fewer transforms"] if has_transforms else []),
    ]
    work = "reads" if reads_files else "transforms"
    return f"every core {work} records: {', '.join(cures)}, or save {saved} as .npz"
