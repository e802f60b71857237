"""Advice for waits for data names what can help."""

from __future__ import annotations

import os

import pytest

from mxrun.base.errors import SourceLocation
from mxrun.config.choice import Choice
from mxrun.config.schema import Data, DatasetSection
from mxrun.session.data_wait import wait_advice

CORES = len(os.sched_getaffinity(0))


def section(workers: int, *transforms: str) -> Data:
    chosen = tuple(Choice(name, {}, SourceLocation("c.yaml", 1, 1)) for name in transforms)
    return Data(
        batch_size=8, workers=workers, train=DatasetSection(dataset="csv", transforms=chosen)
    )


@pytest.mark.parametrize("reads_files", [False, True])
def test_threads_help_while_there_are_cores_without_one(reads_files: bool) -> None:
    idle = section(CORES + 1, "normalize")
    assert "data.workers" not in wait_advice(0.4, idle, reads_files)
    if CORES > 1:
        advice = wait_advice(0.4, section(1, "normalize"), reads_files)
        assert advice == f"set data.workers to {CORES}, the number of cores (now 1)"


def test_images_are_named_only_where_files_are_read() -> None:
    busy = section(CORES, "normalize")
    assert wait_advice(0.4, busy, True) == (
        "every core reads records: store images at the size that the network reads, use fewer "
        "transforms, or save the transformed records as .npz"
    )
    assert wait_advice(0.4, busy, False) == (
        "every core transforms records: use fewer transforms, or save the transformed records as "
        ".npz"
    )


def test_nothing_is_advised_for_short_waits_and_for_bare_copies() -> None:
    assert not wait_advice(0.04, section(CORES, "normalize"), True)
    assert not wait_advice(0.4, section(CORES), False)
