"""`context` with several devices: each computes a part of every batch in the same run."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from commands import HANG_S, digests, mxrun, refused, result, succeeded
from divided_runs import NET, assert_same_bits, learned, trained
from interrupted_runs import INTERVAL, Started, left
from killed_runs import Moment, assert_little_is_redone, chain
from memory_reports import memory_of
from training import metrics, newest, prepare, run_training, run_with_notes

from mxrun.base.context import cpu
from mxrun.base.errors import UserError
from mxrun.device.cpu.pool import available_cores
from mxrun.preparation.planning import load
from mxrun.runtime.engine.default import engine, using_engine
from mxrun.runtime.engine.interface import Pool
from mxrun.runtime.engine.naive import NaiveEngine
from mxrun.runtime.profiler import Event
from mxrun.train.replay import NullCheckpointing, NullObserver

pytestmark = pytest.mark.skipif(available_cores() < 2, reason="two CPU contexts need two cores")

# Several layers whose gradients make a bucket each.
WIDE = """\
name: wide
threads: 1
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - repeat: {count: 5, layers: [{FullyConnected: {name: "fc${i}", num_hidden: 256}}]}
    - FullyConnected: {name: out, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
data: {batch_size: 64, train: {dataset: digits, split: train}}
train: {epochs: 1, optimizer: {sgd: {lr: 0.01}}}
"""
TWO = "context=[cpu:0, cpu:1]"
ONE_STEP = ("train.epochs=null", "train.max_steps=1")


@pytest.fixture(autouse=True)
def _config(empty_folder: Path) -> None:
    Path("net.yaml").write_text(NET)
    Path("wide.yaml").write_text(WIDE)
    Path("bn.yaml").write_text(
        "extends: net.yaml\nname: bn\n"
        "network: {layers: {insert_after: {conv1: [BatchNorm: {name: bn1, fix_gamma: false}]}}}\n"
    )


@contextmanager
def noise() -> Iterator[None]:
    """Occupy the workers of both contexts and of the host again and again, for random times."""
    over = threading.Event()

    def disturb() -> None:
        draw = random.Random()
        while not over.is_set():
            context, pool = draw.choice(
                [(cpu(0), Pool.COMPUTE), (cpu(1), Pool.COMPUTE), (cpu(0), Pool.COMMUNICATION)]
            )
            seconds = draw.choice((0.0002, 0.002))
            engine().push_sync(
                lambda _, seconds=seconds: over.wait(seconds),
                context=context,
                pool=pool,
                priority=draw.choice((-1, 0, 1000)),
                name="noise",
            )
            over.wait(draw.uniform(0.0, 0.002))

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        engine().wait_for_all()


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("train.optimizer={sgd: {lr: 0.1, momentum: 0.9, clip_global_norm: 0.3}}",),
        ("backward=reverse", "fuse=false"),
    ],
    ids=["momentum", "clipped", "reverse"],
)
def test_K3_two_contexts_of_32_take_the_step_of_one_of_64(settings: tuple[str, ...]) -> None:
    """Each parameter after one step differs by at most 1e-6, relative L2; dropout masks are those
    of the whole batch.
    """
    one = trained("one", *settings, *ONE_STEP).parameters
    two = trained("two", TWO, *settings, *ONE_STEP).parameters
    for name, expected in one.items():
        distance = np.linalg.norm(two[name] - expected) / np.linalg.norm(expected)
        assert distance <= 1e-6, name


def test_K3_results_have_the_same_bits_whatever_runs_first() -> None:
    expected = trained("plain", TWO)
    with noise():
        for number in range(3):
            assert_same_bits(expected, trained(f"disturbed{number}", TWO))
    assert_same_bits(expected, trained("device", TWO, "kvstore=device"))
    assert_same_bits(expected, trained("naive", TWO, "engine=naive"))
    assert metrics("naive") == metrics("plain") == metrics("disturbed0")


def test_K5_gradients_are_summed_while_backward_goes_on() -> None:
    """The worker of each context waits before the last piece of every step until the first bucket
    is summed, which would never end if sums had to wait for the complete backward.
    """
    summed, events, guard = threading.Semaphore(0), list[Event](), threading.Lock()

    def sink(event: Event) -> None:
        with guard:
            events.append(event)
        if event.name == "push and pull bucket 1":
            summed.release(2)
        # The pieces before the last one, of which the last but one ends here.
        number, _, count = event.name.removeprefix("train ").partition(" of ")
        if event.name.startswith("train ") and count and int(number) == int(count) - 1:
            assert summed.acquire(timeout=HANG_S)

    engine().record(sink)
    try:
        run_training(TWO, "train.epochs=null", "train.max_steps=3", config="wide.yaml")
    finally:
        engine().record(None)
    pieces = max(int(e.name.split(" of ")[1]) for e in events if e.name.startswith("train 1 of"))
    assert pieces >= 3
    firsts = [event for event in events if event.name == "push and pull bucket 1"]
    lasts = [event for event in events if event.name == f"train {pieces} of {pieces}"]
    assert len(firsts) == 3
    assert {event.track for event in lasts} == {"cpu:0 compute", "cpu:1 compute"}
    for number, first in enumerate(firsts):
        for last in lasts[2 * number : 2 * number + 2]:
            assert first.start_ns + first.duration_ns <= last.start_ns


SETTINGS = {
    "momentum": (),
    "adam": ("train.optimizer={adam: {lr: 0.003, wd: 1e-3}}",),
    "accumulated": ("train.accumulate=2", "train.schedule={cosine: {warmup_steps: 3}}"),
    "micro-batches": ("memory={budget: 40%, micro_batches: true}",),
    "rolled-over": ("data.last_batch=roll_over", "train.average=0.8"),
    "weighted": ("train.class_weights=[1, 2, 3, 4, 5, 1, 1, 1, 1, 1]",),
    "transformed": ("data.train.transforms=[{pad_crop: {pad: 1}}, flip]", "data.workers=2"),
    # With seed 0 a ReLU is so near to 0 that the rounding of sums decides on its gradient.
    "frozen": ("network.variables={conv1_*: {frozen: true}}", "seed=1"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_X10_contexts_take_the_steps_of_whole_batches(setting: str) -> None:
    """With the same learning rate; parameters differ by the rounding of sums. The last batch of 300
    records is padded.
    """
    words = SETTINGS[setting]
    one, two = trained("one", *words), trained("two", *words, TWO)
    assert (two.manifest.plan.micro_batches > 1) == (setting == "micro-batches")
    assert two.manifest.progress.step == one.manifest.progress.step
    # Adam divides small gradients by their size, and so enlarges their rounding.
    atol = 5e-4 if setting == "adam" else 2e-5
    for name, expected in learned(one).items():
        np.testing.assert_allclose(learned(two)[name], expected, rtol=2e-3, atol=atol, err_msg=name)
    for whole, parts in zip(metrics("one"), metrics("two"), strict=True):
        assert parts["learning_rate"] == whole["learning_rate"]
        for part in ("train", "eval"):
            assert parts[part]["loss"] == pytest.approx(whole[part]["loss"], rel=1e-4)


def test_F3_the_arenas_of_all_contexts_are_planned_and_touched() -> None:
    prefetched = ("data.train.transforms=[flip]", "data.prefetch=3")
    limited = ("memory={budget: 60%, micro_batches: true}",)
    for words in ((), ("train.accumulate=2",), prefetched, limited):
        summary = run_training(TWO, *words, "train.epochs=1", overwrite=True)
        report = memory_of("net.yaml", (TWO, *words), measured=False).to_json()
        assert summary["contexts"] == report["contexts"] == 2
        # Other tests of the process may have pools of further contexts.
        assert [*summary["storage"]][:2] == ["cpu:0", "cpu:1"]
        assert [each["requests"] for each in summary["storage"].values()][:2] == [0, 0]
        planned = summary["memory"]["planned_bytes"]
        assert planned == summary["memory"]["touched_bytes"]
        assert planned == report["planned_bytes"] == 2 * report["arena_bytes"]
    words = (TWO, f"memory={{budget: {report['planned_bytes']}, micro_batches: true}}")
    fitted = memory_of("net.yaml", words, measured=False).to_json()
    assert fitted["planned_bytes"] <= report["planned_bytes"] == fitted["budget_bytes"]
    with pytest.raises(UserError, match="each of the 2 contexts has an arena of its own"):
        memory_of("net.yaml", (TWO, "memory.budget=100 KiB"), measured=False)


def test_contexts_share_the_cores_unless_threads_are_given() -> None:
    shared = run_training(TWO, "threads=null", "train.epochs=1")
    assert 1 <= shared["threads"] <= available_cores() // 2
    given = run_training(TWO, "threads=2", "train.epochs=1", overwrite=True)
    assert given["threads"] == 2


def test_a_list_of_one_context_is_that_context() -> None:
    assert_same_bits(trained("one", "context=cpu"), trained("list", "context=[cpu:0]"))


@pytest.mark.parametrize(
    ("first", "then"), [("cpu", "[cpu:0]"), ("[cpu:0, cpu:1]", "[cpu:1, cpu:0]")]
)
def test_a_run_goes_on_on_contexts_that_name_the_same_training(first: str, then: str) -> None:
    """To the bits of a run that never stopped: neither numbers nor their order change any."""
    run_training("train.epochs=1", f"context={first}")
    run_training(f"context={then}", resume=True)
    assert_same_bits(trained("whole", f"context={first}"), newest("net"))
    assert metrics("net") == metrics("whole")


def test_each_context_has_statistics_of_its_own() -> None:
    """Those of the first are saved, and evaluated; parameters are equal."""
    _, notes = run_with_notes(TWO, config="bn.yaml")
    assert notes == [
        "context: 'bn1' normalise the 32 samples of each context apart; moving statistics are "
        "those of the first context"
    ]
    assert newest("bn").manifest.plan.contexts == 2
    saved = metrics("bn")[-1]["eval"]
    evaluated = result("evaluate", "runs/bn", cwd=Path())
    assert evaluated["loss"] == pytest.approx(saved["loss"], rel=1e-5)
    assert evaluated["metrics"]["accuracy"] == saved["accuracy"]

    run = prepare(load("bn.yaml", (TWO, *ONE_STEP, "data.eval=null")))
    loop = run.loop(NullObserver())
    run.restore(None, loop)
    loop.run(NullCheckpointing(), lambda: False)
    run.close()
    first, second = (
        {
            block.name: executor.tensor(block.name).read()
            for block in executor.plan.pinned
            if block.name in run.built.model.learned
        }
        for executor in run.executors
    )
    for name, array in first.items():
        is_statistic = name in ("bn1_moving_mean", "bn1_moving_var")
        assert np.array_equal(array, second[name]) != is_statistic, name


@pytest.mark.parametrize("moments", [(Moment(9, seconds=0.001), Moment(INTERVAL * 4, operation=6))])
def test_F5_a_killed_run_on_two_contexts_goes_on_to_the_same_bytes(
    moments: tuple[Moment, ...], tmp_path: Path
) -> None:
    whole = Started(tmp_path / "whole", TWO)
    code, _, errors = whole.end()
    assert code == 0, errors
    assert_little_is_redone(chain(tmp_path / "killed", moments, TWO))
    assert left(tmp_path / "killed") == left(tmp_path / "whole")


def test_a_run_goes_on_with_other_contexts_only_when_told_so() -> None:
    run_training("train.epochs=1", TWO)
    before = digests(Path("runs/net"))
    longer = ("train", "net.yaml", "--resume", "train.epochs=2")
    text = refused(*longer, cwd=Path())
    assert "contexts: 2 then, 1 now" in text
    assert "--allow-changes" in text
    assert digests(Path("runs/net")) == before
    done = mxrun(*longer, "--allow-changes", "--json", cwd=Path())
    assert done.returncode == 0, done.stderr
    assert "contexts: 2 then, 1 now" in done.stderr
    assert newest("net").manifest.plan.contexts == 1


def test_what_is_not_finite_is_named_with_its_step_and_record() -> None:
    diverging = ("train.optimizer={sgd: {lr: 1e30}}", "train.epochs=3")
    for words in (diverging, (*diverging, "train.accumulate=2")):
        with pytest.raises(UserError, match=r"training has diverged in step [0-9]+, epoch 1: "):
            run_training(TWO, *words, overwrite=True)


@pytest.mark.parametrize(
    ("words", "place", "said"),
    [
        (("context=[cpu:0, cpu:0]",), ":1:17:", "different devices, each listed once"),
        (("context=[cpu:0, reference]",), ":1:17:", "devices of one kind"),
        (("context=[]",), ":1:9:", "at least one device"),
        (("context=[cpu:0, cpu:9999]",), ":1:17:", "there is no device cpu:9999"),
        ((TWO, "data.batch_size=63"), ":2:17:", "a multiple of 2"),
        ((TWO, "memory={micro_batches: true}"), ":2:9:", "memory.budget, which is not given"),
    ],
)
def test_contexts_that_cannot_train_together_are_refused_at_their_place(
    words: tuple[str, ...], place: str, said: str
) -> None:
    text = refused("train", "net.yaml", *words, cwd=Path())
    assert said in text
    assert f"<command line>{place}" in text
    assert not Path("runs").exists()


def test_bench_times_steps_on_all_contexts() -> None:
    words = ("--steps", "3", "--warmup", "1", "--trace", "trace.json")
    report = result("bench", "wide.yaml", TWO, *words, cwd=Path())
    assert (report["contexts"], report["threads"], report["batch_size"]) == (2, 1, 64)
    times = report["mxrun"]["step_ms"]
    assert 0 < times["min"] <= times["median"]
    functions = {row["name"]: row for row in report["functions"]}
    pieces = [name for name in functions if name.startswith("train ")]
    assert len(pieces) >= 2
    for name in ("load", "measure train", "update", *pieces):
        assert functions[name]["calls"] == 2, name
    assert functions["push and pull bucket 1"]["calls"] == 1
    assert functions["load"]["start_ms"] <= functions[pieces[0]]["start_ms"]
    assert functions["push and pull bucket 1"]["end_ms"] <= functions["update"]["end_ms"]
    tracks = {
        event["args"]["name"]
        for event in json.loads(Path("trace.json").read_text())["traceEvents"]
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    assert {"steps", "cpu:0 compute", "cpu:1 compute"} <= tracks
    shown = succeeded(mxrun("bench", "wide.yaml", TWO, *words[:4], cwd=Path())).stdout
    assert "push and pull bucket 1" in shown
    # Inference is that of the first context.
    inferred = result("bench", "net.yaml", TWO, "--phase", "infer", *words[:4], cwd=Path())
    assert (inferred["contexts"], len(inferred["operators"]) > 3) == (1, True)


def test_bench_compares_no_baseline_with_several_contexts() -> None:
    text = refused("bench", "net.yaml", TWO, "--against", "torch", cwd=Path())
    assert "baselines have no contexts" in text
    assert "add context=cpu:0, or leave out --against" in text


def test_F3_the_largest_batch_is_one_that_all_contexts_share() -> None:
    plain = memory_of("net.yaml", (TWO,), measured=False).to_json()["planned_bytes"]
    budget = f"memory.budget={plain}"
    found = memory_of("net.yaml", (TWO, budget), batch="max", measured=False).to_json()
    size = found["batch_size"]
    assert size % 2 == 0
    assert found["planned_bytes"] <= found["budget_bytes"]
    with pytest.raises(UserError, match="does not fit"):
        memory_of("net.yaml", (TWO, budget), batch=size + 2, measured=False)
    words = (TWO, budget, "train.epochs=1")
    done = succeeded(mxrun("train", "net.yaml", *words, "--batch", "max", "--json", cwd=Path()))
    assert f"--batch max: {size} samples fit" in done.stderr
    assert json.loads(done.stdout)["contexts"] == 2
    assert f"batch_size: {size}" in Path("runs/net/config.yaml").read_text()
    text = refused("inspect-memory", "net.yaml", TWO, "memory.budget=4 KiB", "--batch", "max")
    assert "not even a batch of 2 samples, one for each context, fits" in text


def test_F3_the_largest_batch_is_one_that_the_records_fill_on_each_context() -> None:
    words = (TWO, "train.epochs=1", "data.train.split={of: train, range: [0, 33]}")
    done = succeeded(mxrun("train", "net.yaml", *words, "--batch", "max", cwd=Path()))
    assert "--batch max: 32 samples, because there are no more records" in done.stderr


def test_F7_settings_are_planned_on_all_contexts() -> None:
    report = memory_of("net.yaml", (TWO,), measured=False, what_if=True).to_json()
    changes = {change["config"]: change for change in report["what_if"]["changes"]}
    assert {"context=cpu:0", "--batch 32", "--batch 128", "precision=bfloat16"} <= changes.keys()
    for config, change in changes.items():
        batch = int(config.removeprefix("--batch ")) if config.startswith("--batch ") else None
        words = (TWO,) if batch else (TWO, config)
        planned = memory_of("net.yaml", words, batch=batch, measured=False).to_json()
        is_limit = config.startswith("memory.budget=") and not config.endswith("%")
        assert planned["planned_bytes"] <= change["planned_bytes"]
        assert is_limit or planned["planned_bytes"] == change["planned_bytes"]
        assert change["saved_bytes"] == report["planned_bytes"] - change["planned_bytes"]
        assert change["batch_size"] == planned["batch_size"]


def test_verify_compares_one_context() -> None:
    assert mxrun("verify", "net.yaml", TWO, "--steps", "2", cwd=Path()).returncode == 0


def test_the_trace_of_a_run_shows_the_workers_of_its_contexts() -> None:
    result("train", "net.yaml", TWO, "train.epochs=1", "--trace", "trace.json", cwd=Path())
    content = json.loads(Path("trace.json").read_text())
    names = {event["name"] for event in content["traceEvents"]}
    assert {"load", "measure train", "update", "evaluate", "push and pull bucket 1"} <= names


def test_the_naive_engine_runs_contexts_one_after_the_other() -> None:
    with using_engine(NaiveEngine()):
        summary = run_training(TWO, "engine=naive", "train.epochs=1")
    assert summary["contexts"] == 2
