"""NumPy bodies give the same bits whatever number of threads NumPy would use by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import digests, mxrun, succeeded
from threadpoolctl import threadpool_info

from mxrun.runtime.numpy_threads import limit_numpy_threads, matrix_library

DATA = (
    "data.train={dataset: synthetic, classes: 10, split: train, records: 320}",
    "data.eval={dataset: synthetic, classes: 10, split: test, records: 64}",
)


def digests_of(folder: Path, threads: str, *overrides: str) -> dict[str, str]:
    """Train where NumPy would use that many threads; return the digests of the run's files."""
    folder.mkdir()
    train = ("train", "mlp_mnist", "data.batch_size=64", "train.epochs=1", *DATA, *overrides)
    succeeded(mxrun(*train, cwd=folder, environment={"OPENBLAS_NUM_THREADS": threads}))
    return digests(folder / "runs")


@pytest.mark.parametrize("device", ["context=reference", "implementation=numpy"])
def test_bits_do_not_depend_on_the_threads_of_numpy(device: str, tmp_path: Path) -> None:
    one, two = (digests_of(tmp_path / threads, threads, device) for threads in ("1", "2"))
    assert one
    assert one == two


def test_a_description_names_the_matrix_library() -> None:
    libraries = [each for each in threadpool_info() if each["user_api"] == "blas"]
    before = {each["filepath"]: each["num_threads"] for each in libraries}
    assert before
    assert any(each["version"] in matrix_library() for each in libraries)
    try:
        limit_numpy_threads(1)
        changed = [each for each in threadpool_info() if each["user_api"] == "blas"]
        assert all(each["num_threads"] == 1 for each in changed)
    finally:
        limit_numpy_threads(max(before.values()))
