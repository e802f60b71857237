"""Memory properties of every bundled config, or of a complete run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from bundled_runs import BUNDLED, bundled
from commands import CONFIGS
from memory_reports import memory_of
from training import prepare

from mxrun.base.tensor import TensorSpec
from mxrun.config.bundled import find_config
from mxrun.executor.executor import Executor
from mxrun.graph.naming import in_words
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.planner.plan import Block
from mxrun.preparation.planning import load

CONFIG_NAMES = sorted(path.stem for path in CONFIGS.glob("*.yaml"))
SENTINELS = (0x3E, 0x3F)


@pytest.mark.parametrize("config", CONFIG_NAMES)
def test_S5_sharing_pays_for_every_bundled_config(config: str) -> None:
    """Plans need less than the sum of all tensors, and inference less than training, per batch
    size.

    Inference stores packed parameters beside the plain ones. If training freezes most parameters,
    the packed ones may take more than gradients and optimizer state.
    """
    path = find_config(config)
    train, infer = (
        memory_of(path, (), phase=phase, threads=1, measured=False).plan
        for phase in ("train", "infer")
    )
    assert train.planned_bytes < train.naive_bytes
    assert infer.planned_bytes < infer.naive_bytes
    packed = infer.classes()["constants"].total_bytes
    assert infer.planned_bytes - packed < train.planned_bytes
    built = load(path)
    if built.training.rules.keys() == built.model.parameters.keys():
        assert infer.planned_bytes < train.planned_bytes


def changed(executor: Executor, block: Block, sentinel: int) -> bool:
    content = TensorSpec((block.nbytes,), "uint8")
    return bool((executor.tensor_at(block.offset, content).values() != sentinel).any())


def overwrite(executor: Executor, begin: int, end: int, sentinel: int) -> None:
    executor.device.fill(executor.memory, begin, end, sentinel)


def touched(executor: Executor, sentinel: int) -> Iterator[Block]:
    """Yield the blocks of a training step that contain new values after one of their steps.

    Each block is filled with the sentinel at the start of its lifetime.
    """
    planned, program = executor.plan.phases[TRAIN], executor.programs[TRAIN]
    position = {step.name: index for index, step in enumerate(planned.steps)}
    order = [position[name] for name in program.names]
    seen: dict[int, Block] = {}

    def begin(after: int, last: int) -> None:
        for block in planned.blocks:
            if after < block.first <= last:
                overwrite(executor, block.offset, block.end, sentinel)

    def look(index: int) -> None:
        now = order[index]
        for number, block in enumerate(planned.blocks):
            if block.first <= now < block.last and changed(executor, block, sentinel):
                seen[number] = block
        begin(now, order[index + 1] if index + 1 < len(order) else now)

    begin(-1, order[0])
    program.run_watched(look)
    yield from seen.values()


@pytest.mark.parametrize("config", BUNDLED)
def test_F1_planned_bytes_are_touched_by_class(config: str) -> None:
    """The bytes written in a run, measured block by block, are those of inspect-memory for each
    class.
    """
    report = memory_of(find_config(config), threads=2, measured=False)
    built = bundled(config)
    run = prepare(built)
    executor = run.executor
    planned = {
        name: figures.total_bytes
        for name, figures in report.plan.classes().items()
        if figures.total_bytes
    }
    assert report.plan.largest_phase.name == TRAIN
    for sentinel in SENTINELS:
        overwrite(executor, 0, executor.plan.planned_bytes, sentinel)
        run.initialise(start=False)
        run.read_batches()
        executor.run(EVALUATE)
        pinned = [block for block in executor.plan.pinned if changed(executor, block, sentinel)]
        found: dict[str, int] = {}
        for block in (*pinned, *touched(executor, sentinel)):
            kind = block.memory_class.value
            found[kind] = found.get(kind, 0) + block.nbytes
        assert found == planned
    run.close()


@pytest.fixture(scope="module", params=["", "memory.budget=50%"], ids=["plain", "budget"])
def course(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """The report of a residual network's training step."""
    overrides = [request.param] if request.param else []
    path = find_config("resnet20_cifar10")
    return memory_of(path, overrides, phase="train", batch=8, threads=1, measured=False).to_json()


def test_L14_the_timeline_shows_that_blocks_go_with_their_last_reader(
    course: Mapping[str, Any],
) -> None:
    """No block outlives the last step that reads it, so live bytes fall throughout backward."""
    timeline = course["timeline"]["train"]
    names = [in_words(name) for name in timeline["operators"]]
    for block in course["blocks"]["train"]:
        if "reads it" in block["reason"]:
            reader = names[block["last"]].removesuffix(" again").partition(" (")[0]
            assert reader.removeprefix("backward of ") in block["reason"]
    pinned = sum(block["bytes"] for block in course["pinned"])
    live_bytes = [nbytes - pinned for nbytes in timeline["bytes"]]
    assert live_bytes[-1] < 0.1 * max(live_bytes)
    first = timeline["operators"].index("softmax:backward")
    quarters = [
        max(live_bytes[first + part * (len(live_bytes) - first) // 4 :]) for part in range(4)
    ]
    assert quarters == sorted(quarters, reverse=True)
    assert quarters[-1] < quarters[0]


def test_L14_the_timeline_shows_dropped_activations_made_again() -> None:
    """Recomputed tensors are freed in forward and live again in backward, which lowers the peak."""
    path = find_config("resnet20_cifar10")
    plain, less = (
        memory_of(path, overrides, phase="train", batch=8, threads=1, measured=False).to_json()
        for overrides in ([], ["memory.budget=50%"])
    )
    steps = less["timeline"]["train"]["operators"]
    backward = steps.index("softmax:backward")
    again = [name for name in steps if name.endswith(":again")]
    cheap = [name for name in again if name.partition(":")[0].endswith(("bn+relu", "relu"))]
    assert cheap
    dropped = 0
    for name in cheap:
        first, second = steps.index(name.removesuffix(":again")), steps.index(name)
        assert first < backward < second
        made = [block for block in less["blocks"]["train"] if block["first"] == first]
        dropped += any(block["last"] < backward for block in made)
    assert dropped == len(cheap)
    assert max(less["timeline"]["train"]["bytes"]) == less["planned_bytes"]
    assert less["planned_bytes"] < 0.6 * plain["planned_bytes"]
    assert set(steps) - set(again) == set(plain["timeline"]["train"]["operators"])
