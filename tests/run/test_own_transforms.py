"""What a user's own transform may return and do: the same on threads and in processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from commands import HANG_S, mxrun, succeeded
from registries import loaded_plugin

from mxrun import library
from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.fields import Field
from mxrun.io.loading.process_transforms import ProcessTransforms
from mxrun.io.loading.python_transforms import ThreadTransforms, TimedTransforms, TransformRunner
from mxrun.io.transforms.base import TRANSFORMS
from mxrun.io.transforms.draws import Draws
from mxrun.io.transforms.pipeline import TransformStep, pipeline
from mxrun.io.transforms.program import RowProgram
from mxrun.run.transform_process import command

PLUGIN = '''
import sys

import numpy as np
from pydantic import Field

from mxrun.io.transforms.base import Transform, register

TRIED = set()
MADE = []


@register("test_free")
class Free(Transform):
    """Returns and does what `how` says."""

    how: str = Field(description="What it does.")

    def model_post_init(self, context):
        MADE.append(self)

    def apply(self, record, draw):
        if self.how == "in place":
            record += 1
            if record.tobytes() not in TRIED:
                TRIED.add(record.tobytes())
                raise ValueError("the first time")
            return record
        if self.how == "exit":
            sys.exit(3)
        if self.how == "made":
            return np.full(record.shape, len(MADE), np.float32)
        if self.how == "masked":
            return np.ma.masked_array(record, record > 1)
        return record.astype(self.how)
'''
COUNT = 5


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[library.Plugin]:
    with loaded_plugin(tmp_path_factory.mktemp("plugin") / "free.py", PLUGIN) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def processes(plugin: library.Plugin) -> Iterator[ProcessTransforms]:
    with closing(ProcessTransforms(command([plugin]), timeout=HANG_S)) as opened:
        yield opened


def records(dtype: type = np.uint8) -> np.ndarray:
    return np.arange(COUNT * 4, dtype=dtype).reshape(COUNT, 4)


def results(python: TransformRunner, how: str) -> list[np.ndarray | UserError]:
    step = TransformStep(0, TRANSFORMS.get("test_free").model_validate({"how": how}))
    draws = [Draws(1, 1, record) for record in range(COUNT)]
    return python.run([step], "data", list(records()), draws)


def test_a_record_may_be_changed_in_place(processes):
    """Also if the record is tried again, or if it is among those that are timed."""
    timed = TimedTransforms(lambda: processes)
    for python in (ThreadTransforms(), processes, timed):
        assert np.array_equal(results(python, "in place"), records() + 1)
    assert timed.kind


def test_a_chunk_without_good_records_is_not_timed(processes):
    timed = TimedTransforms(lambda: processes)
    assert timed.run([], "data", [], []) == []
    assert not timed.kind


@pytest.mark.parametrize("how", ["object", "complex64", "S8", "exit"])
def test_a_result_that_is_no_array_of_numbers_is_an_error(processes, how):
    reason = "SystemExit: 3" if how == "exit" else "it returned an array of"
    for python in (ThreadTransforms(), processes):
        found = results(python, how)
        assert all(isinstance(each, UserError) for each in found)
        assert all(reason in each.diagnostics[0].problem for each in found)
    assert processes.replaced == 0


def test_results_are_plain_arrays(processes):
    for python in (ThreadTransforms(), processes):
        assert {type(each) for each in results(python, "masked")} == {np.ndarray}


def test_a_process_makes_a_transform_once(processes):
    once = [results(processes, "made") for _ in range(3)]
    assert np.ptp(once) == 0


@pytest.mark.parametrize("dtype", ["float16", "float64", "int16", "bool"])
def test_whole_numbers_are_scaled_and_others_are_values(plugin, dtype):
    """So a result of float64 is that of float32, which NumPy's arithmetic easily makes of it."""
    transform = TRANSFORMS.get("test_free").model_validate({"how": dtype})
    numbers, rows = np.arange(COUNT), np.empty((COUNT, 4), np.float32)
    column = Field(records(), scale=0.5)
    program = RowProgram(pipeline([(transform, None)]), "data", column, TensorSpec((4,)), 1)
    assert not program.write(program.read(numbers), numbers, numbers, rows)
    expected = records() * 0.5 if dtype == "int16" else records().astype(dtype)
    assert np.array_equal(rows, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.int16, np.float16])
def test_images_of_any_numbers_are_moved_before_other_transforms(plugin, dtype):
    images = np.arange(COUNT * 3 * 4 * 4).reshape(COUNT, 3, 4, 4).astype(dtype)
    flip = TRANSFORMS.get("flip").model_validate({"probability": 1})
    own = TRANSFORMS.get("test_free").model_validate({"how": "float32"})
    steps = pipeline([(flip, None), (own, None)])
    numbers, rows = np.arange(COUNT), np.empty((COUNT, 3, 4, 4), np.float32)
    program = RowProgram(steps, "data", Field(images), TensorSpec((3, 4, 4)), 1)
    assert not program.write(program.read(numbers), numbers, numbers, rows)
    assert np.array_equal(rows, images[:, :, :, ::-1].astype(np.float32))


CONFIG = """\
name: net
threads: 1
plugins: [printing.py]
network:
  inputs: {data: [4], label: []}
  layers:
    - FullyConnected: {num_hidden: 2}
    - SoftmaxOutput: {label: label}
data:
  batch_size: 4
  workers: 2
  train: {dataset: csv, path: rows.csv, transforms: [test_printing]}
train: {epochs: 1, optimizer: sgd}
"""
PRINTING = '''
from mxrun.io.transforms.base import Transform, register

print("imported")


@register("test_printing")
class Printing(Transform):
    """Prints a line for each record."""

    def apply(self, record, draw):
        print("applied")
        return record
'''


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_what_a_plugin_prints_is_no_part_of_the_results(empty_folder: Path, kind: str):
    Path("printing.py").write_text(PRINTING)
    Path("net.yaml").write_text(CONFIG)
    Path("rows.csv").write_text("".join(f"{number},1,2,3,{number % 2}\n" for number in range(20)))
    done = succeeded(mxrun("train", "net.yaml", f"data.worker_kind={kind}", "--json"))
    assert json.loads(done.stdout)["python_transforms"] == kind
    assert "imported" in done.stderr
    assert "applied" in done.stderr
    table = succeeded(mxrun("infer", "runs/net", "rows.csv", "--output", "csv"))
    assert "applied" in table.stderr
    assert len(table.stdout.splitlines()) == 1 + 20
