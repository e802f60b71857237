"""Advice for training that waits for its data."""

from __future__ import annotations

from mxrun.base.cores import usable_cores
from mxrun.config import Data
from mxrun.io.loading.python_transforms import THREAD
from mxrun.io.loading.statistics import MAKE, READ, Work, limiting_stage

# Share of the training time spent waiting for data from which advice is given.
_LONG_WAIT = 0.05
# Data sets of arrays, whose records need no decoding.
_ARRAYS = ("npz", "npy")


def wait_advice(
    share: float, data: Data, reads_files: bool, work: Work, python: str | None = None
) -> str:
    """Return what limits loading and how to shorten the waits for data.

    Empty if they are short or cannot be shortened. share: fraction of the training time spent
    waiting. reads_files: whether records are read from files during training, instead of once
    before it. work: that of each stage. python: where transforms of the user's own ran.
    """
    has_transforms = bool(data.train.transforms)
    if share < _LONG_WAIT or not (reads_files or has_transforms):
        return ""
    stage = limiting_stage(work)
    if stage == READ and reads_files:
        return _reading_advice(data)
    # With fewer workers than two, `auto` stays on the thread.
    is_thread = python == THREAD and data.worker_kind == THREAD and data.loader_threads > 1
    if stage == MAKE and is_thread:
        return "the transforms are the limit; set data.worker_kind to process or auto"
    is_decoded = reads_files and data.train.dataset not in _ARRAYS
    limit = "" if stage != MAKE else f"{_making(is_decoded, has_transforms)} the limit; "
    return f"{limit}{_making_advice(data, reads_files, has_transforms)}"


def _making(is_decoded: bool, has_transforms: bool) -> str:
    """Return the work of making rows, as a subject with its verb."""
    if is_decoded and has_transforms:
        return "decoding and transforms are"
    if is_decoded:
        return "decoding is"
    return "the transforms are" if has_transforms else "copying records is"


def _making_advice(data: Data, reads_files: bool, has_transforms: bool) -> str:
    """Return what shortens the making of rows.

    More loader threads help while there are cores without one; then only less work per record does.
    """
    cores, threads = usable_cores(), data.loader_threads
    if threads < cores:
        return f"set data.workers to {cores}, the number of cores (now {threads})"
    if reads_files and data.train.dataset in _ARRAYS:
        cures = [*(["use fewer transforms"] if has_transforms else []), "set in_memory: true"]
        return f"every core reads records: {', or '.join(cures)}, if the records fit into memory"
    saved = "the transformed records" if has_transforms else "the records"
    cures = [
        *(["store images at the size that the network reads"] if reads_files else []),
        *(["use fewer transforms"] if has_transforms else []),
    ]
    work = "reads" if reads_files else "transforms"
    return f"every core {work} records: {', '.join(cures)}, or save {saved} as .npz"


def _reading_advice(data: Data) -> str:
    """Return what shortens the reading of files, which needs no core."""
    workers = 2 * max(data.loader_threads, 1)
    return (
        f"reading the files is the limit; set data.workers to {workers}, so that more files are "
        "read at a time, or pack the records into one file and shuffle within a window"
    )
