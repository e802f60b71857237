"""NumPy bodies give the same bits whatever number of threads NumPy would use by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import digests, mxrun, python_output, succeeded

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


@pytest.mark.full
@pytest.mark.parametrize("device", ["context=reference", "implementation=numpy"])
def test_bits_do_not_depend_on_the_threads_of_numpy(device: str, tmp_path: Path) -> None:
    one, two = (digests_of(tmp_path / threads, threads, device) for threads in ("1", "2"))
    assert one
    assert one == two


# In a process of its own: libraries that other tests load, such as PyTorch's, come to be among
# those whose threads are counted.
_LIMITED = """
import json
import numpy
from threadpoolctl import threadpool_info
from mxrun.runtime.numpy_threads import matrix_library, use_one_numpy_thread

use_one_numpy_thread()
found = [each for each in threadpool_info() if each["user_api"] == "blas"]
print(json.dumps([matrix_library(), found]))
"""


def test_threads_are_limited_and_a_description_names_the_matrix_library() -> None:
    name, libraries = json.loads(python_output("-c", _LIMITED))
    assert {each["num_threads"] for each in libraries} == {1}
    assert libraries[0]["version"] in name
