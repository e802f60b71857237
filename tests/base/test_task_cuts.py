"""Cuts of work into tasks."""

from __future__ import annotations

import pytest

from mxrun.base.device import CPU, Cut, DeviceDescription


@pytest.mark.parametrize(
    ("mflops", "tasks"), [(0.9, 1), (1, 2), (9, 2), (10, 4), (799, 8), (800, 16), (1e6, 32)]
)
def test_large_products_are_cut_into_calls_for_many_cores(mflops: float, tasks: int) -> None:
    device = DeviceDescription(CPU, threads=3)
    assert device.cut_for_flops(int(mflops * 1e6)) == Cut(tasks, min(tasks, 3))
