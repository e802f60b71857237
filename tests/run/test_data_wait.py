"""Advice for waits for data names what can help."""

from __future__ import annotations

import os

import pytest

from mxrun.base.errors import SourceLocation
from mxrun.config import Data, DatasetSection
from mxrun.config.choice import Choice
from mxrun.io.loading.statistics import StageWork, Work
from mxrun.run.data_wait import wait_advice

CORES = len(os.sched_getaffinity(0))


def work(**seconds: float) -> Work:
    """Work of stages with two threads each."""
    return {stage: StageWork(each, 10, 100, 2) for stage, each in seconds.items()}


MAKING = work(read=0.1, make=2.0, mix=0.0, copy=0.1)


def section(workers: int, *transforms: str) -> Data:
    chosen = tuple(Choice(name, {}, SourceLocation("c.yaml", 1, 1)) for name in transforms)
    return Data(
        batch_size=8, workers=workers, train=DatasetSection(dataset="csv", transforms=chosen)
    )


@pytest.mark.parametrize("reads_files", [False, True])
def test_threads_help_while_there_are_cores_without_one(reads_files: bool) -> None:
    idle = section(CORES + 1, "normalize")
    assert "data.workers" not in wait_advice(0.4, idle, reads_files, MAKING)
    if CORES > 1:
        advice = wait_advice(0.4, section(1, "normalize"), reads_files, MAKING)
        assert advice.endswith(f"set data.workers to {CORES}, the number of cores (now 1)")


def test_images_are_named_only_where_files_are_read() -> None:
    busy = section(CORES, "normalize")
    assert wait_advice(0.4, busy, True, MAKING) == (
        "decoding and transforms are the limit; every core reads records: store images at the size "
        "that the network reads, use fewer transforms, or save the transformed records as .npz"
    )
    assert wait_advice(0.4, busy, False, MAKING) == (
        "the transforms are the limit; every core transforms records: use fewer transforms, or "
        "save the transformed records as .npz"
    )


def test_arrays_are_not_decoded_and_may_be_read_into_memory() -> None:
    arrays = section(CORES, "normalize")
    arrays = arrays.model_copy(update={"train": arrays.train.model_copy(update={"dataset": "npz"})})
    assert wait_advice(0.4, arrays, True, MAKING) == (
        "the transforms are the limit; every core reads records: use fewer transforms, or set "
        "in_memory: true, if the records fit into memory"
    )


def test_the_limiting_stage_is_named() -> None:
    """Of stages with as many threads it is the one that is busy for the longest time."""
    reading = work(read=3.0, make=2.0, mix=0.0, copy=0.1)
    advice = wait_advice(0.4, section(2, "normalize"), True, reading)
    assert advice.startswith("reading the files is the limit; set data.workers to 4, ")
    assert wait_advice(0.4, section(CORES), True, MAKING).startswith("decoding is the limit; ")


def test_processes_help_transforms_on_threads() -> None:
    data = section(max(CORES, 2), "own").model_copy(update={"worker_kind": "thread"})
    assert wait_advice(0.4, data, False, MAKING, "thread") == (
        "the transforms are the limit; set data.worker_kind to process or auto"
    )
    assert "worker_kind" not in wait_advice(0.4, data, False, MAKING)
    alone = data.model_copy(update={"workers": 0})
    assert "worker_kind" not in wait_advice(0.4, alone, False, MAKING, "thread")


def test_nothing_is_advised_for_short_waits_and_for_bare_copies() -> None:
    assert not wait_advice(0.04, section(CORES, "normalize"), True, MAKING)
    assert not wait_advice(0.4, section(CORES), False, {})
