"""Steps without a team of OpenMP's: their loops run on the pool, calls of oneDNN on one thread."""

from __future__ import annotations

import pytest
from bundled_runs import bundled, executor_of

from mxrun.config.bundled import find_config
from mxrun.device.cpu.call import NativeCall
from mxrun.device.cpu.pool import run_tasks
from mxrun.device.cpu.tape import Tape
from mxrun.device.cpu.team import openmp
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.preparation.planning import load

runtime = openmp()


@pytest.mark.skipif(runtime is None, reason="libgomp.so.1 is not installed")
@pytest.mark.parametrize(
    ("config", "has_images"),
    [("mlp_mnist", True), ("lenet_mnist", True), ("lstm_tiny", False), ("gpt_tiny", False)],
)
def test_a_step_has_no_region_of_openmp(config: str, has_images: bool) -> None:
    built = bundled(config) if has_images else load(find_config(config), ["threads=2"])
    executor = executor_of(built)
    assert runtime is not None
    for phase in (TRAIN, EVALUATE):
        program = executor.programs[phase]
        assert isinstance(program, Tape)
        calls = [entry.call for entry in program.entries if isinstance(entry.call, NativeCall)]
        assert run_tasks.address in {call.function for call in calls}
        assert runtime.parallel not in {call.function for call in calls}
        # One for the whole step, because all primitives are for one thread.
        sizes = [call.arguments[0] for call in calls if call.function == runtime.set_threads]
        assert sizes == [1]
