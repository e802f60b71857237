"""Steps: their loops run on the pool, and calls of oneDNN on one thread each."""

from __future__ import annotations

import pytest
from bundled_runs import bundled, executor_of

from mxrun.config.bundled import find_config
from mxrun.device.cpu.call import NativeCall
from mxrun.device.cpu.onednn import library
from mxrun.device.cpu.pool import run_tasks
from mxrun.device.cpu.tape import Tape
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.preparation.planning import load


@pytest.mark.skipif(library.load() is None, reason=library.reason())
@pytest.mark.parametrize(
    ("config", "has_images"),
    [("mlp_mnist", True), ("lenet_mnist", True), ("lstm_tiny", False), ("gpt_tiny", False)],
)
def test_a_step_lets_onednn_use_one_thread_alone(config: str, has_images: bool) -> None:
    built = bundled(config) if has_images else load(find_config(config), ["threads=2"])
    executor = executor_of(built)
    set_threads = library.require().set_threads
    for phase in (TRAIN, EVALUATE):
        program = executor.programs[phase]
        assert isinstance(program, Tape)
        calls = [entry.call for entry in program.entries if isinstance(entry.call, NativeCall)]
        assert run_tasks.address in {call.function for call in calls}
        sizes = [call.arguments[0] for call in calls if call.function == set_threads]
        assert sizes == [1]
