"""Models in Python do what the commands do, to the same bits."""

from __future__ import annotations

import gc
import json
import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from commands import mxrun as command
from commands import succeeded
from training import json_lines

import mxrun
from mxrun.runtime.resident import resident_bytes

pytestmark = pytest.mark.commands

DIGITS = "digits_lenet"
SHORT = {"train.epochs": 2}
ALREADY = (
    r"^runs/run exists already\n  hint: fit\(resume=True\) continues it, "
    r'fit\(overwrite=True\) replaces it, {"name": "OTHER"} makes another$'
)
IMAGES = np.arange(5 * 64).reshape(5, 8, 8).astype(np.uint8) % 17


def saved(folder: Path) -> dict[str, bytes]:
    """Return the files of a run's newest checkpoint, without those that have its name."""
    newest = max(folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    files = {path.name: path.read_bytes() for path in newest.iterdir()}
    return files | {"metrics.jsonl": (folder / "metrics.jsonl").read_bytes()}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that the command has trained."""
    folder = tmp_path_factory.mktemp("trained")
    succeeded(command("train", DIGITS, "train.epochs=2", "name=run", cwd=folder))
    return folder / "runs" / "run"


def test_fit_is_the_command(trained: Path, empty_folder: Path) -> None:
    model = mxrun.load(DIGITS, {**SHORT, "name": "run"})
    initial = dict(model.parameters)
    result = model.fit(progress=False)
    assert saved(result.folder) == saved(trained)
    assert (result.folder, result.ended) == (Path("runs/run"), "finished")
    # Again from the beginning, not from the result.
    assert any((model.parameters[name] != initial[name]).any() for name in initial)
    with pytest.raises(mxrun.UserError, match=ALREADY):
        model.fit(progress=False)
    assert saved(model.fit(overwrite=True, progress=False).folder) == saved(trained)


def test_results_of_a_run(trained: Path) -> None:
    result = mxrun.load(trained).result
    assert result is not None
    records = json_lines(trained / "metrics.jsonl")
    assert [dict(record) for record in result.history] == records
    accuracies = [record["eval"]["accuracy"] for record in records]
    assert result.curve("accuracy").tolist() == accuracies
    assert result.best is not None
    assert (result.best.metric, result.best.value) == ("accuracy", max(accuracies))
    with pytest.raises(KeyError, match="no eval metric 'f2'; measured: accuracy"):
        result.curve("f2")


def test_predict_is_the_command(trained: Path, empty_folder: Path) -> None:
    np.save("images.npy", IMAGES)
    succeeded(command("infer", str(trained), "images.npy", "--to", "out.npy"))
    model = mxrun.load(trained)
    expected = np.load("out.npy")
    for data in (IMAGES, "images.npy", ["images.npy"], {"data": IMAGES}):
        predicted = model.predict(data)
        assert np.array_equal(predicted.values, expected)
        assert np.array_equal(np.asarray(predicted), expected)
    assert predicted.names == [str(number) for number in expected.argmax(axis=1)]
    assert [name for name, _ in predicted.top(10)[0]] != sorted(predicted.classes)
    predicted.values[...] = 0
    assert np.array_equal(model.predict(IMAGES).values, expected)
    features = model.predict(IMAGES, outputs=["fc1", "fc2"])
    assert {name: each.shape for name, each in features.outputs.items()} == {
        "fc1": (5, 64),
        "fc2": (5, 10),
    }


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"image": IMAGES}, "the arrays are not those of the network's inputs"),
        (np.zeros((2, 3, 3)), "record 0 does not fit the network's input 'data'"),
        (np.array(["a"]), "predict cannot read this|there is no such file"),
        ("missing.png", "missing.png: there is no such file or folder"),
        (np.zeros((0, 1, 8, 8)), "there are no records to infer"),
        ([[1, 2], [3]], "the records cannot be read as an array\n  expected: rows of equal shapes"),
        ({"data": [[1, 2], [3]]}, "array 'data' cannot be read as an array"),
        ({"data": np.array(["a"])}, "predict cannot read array 'data'"),
        ({3: IMAGES}, "an input's name is text"),
    ],
)
def test_records_that_do_not_fit(trained: Path, data: object, problem: str) -> None:
    with pytest.raises(mxrun.UserError, match=problem):
        mxrun.load(trained).predict(data)  # type: ignore[arg-type]


def test_records_may_be_single_numbers(empty_folder: Path) -> None:
    """As the lengths of sequences are."""
    lengths = np.array([1, 3, 2], np.float32)
    last = {"name": "last", "data": "data", "axis": 1}
    reads = {"use_sequence_length": True, "sequence_length": "lengths"}
    dense = {"FullyConnected": {"name": "out", "num_hidden": 1, "no_bias": True}}
    loss = {"LinearRegressionOutput": {"label": "label"}}
    layers = [{"SequenceLast": {**last, **reads}}, dense, loss]
    network = {"inputs": {"data": [3, 2], "lengths": [], "label": [1]}, "layers": layers}
    train = {"epochs": 1, "optimizer": "sgd"}
    data = {"batch_size": 2, "train": {"dataset": "synthetic", "split": "train"}}
    model = mxrun.load({"name": "last", "network": network, "data": data, "train": train})
    records = np.arange(18, dtype=np.float32).reshape(3, 3, 2)
    predicted = model.predict({"data": records, "lengths": lengths})
    expected = records[[0, 1, 2], [0, 2, 1]] @ model.parameters["out_weight"].T
    np.testing.assert_allclose(predicted.values, expected, rtol=1e-6)


def test_evaluate_is_the_command(trained: Path, empty_folder: Path) -> None:
    done = succeeded(command("evaluate", str(trained), "--json"))
    expected = json.loads(done.stdout)
    model = mxrun.load(trained)
    evaluated = model.evaluate()
    assert (evaluated.loss, evaluated.metrics) == (expected["loss"], expected["metrics"])
    assert evaluated.confusion is not None
    assert evaluated.confusion.tolist() == expected["heads"][0]["confusion_matrix"]
    assert model.evaluate("train").records > evaluated.records == model.evaluate("test").records
    # Of the network's own predictions as labels, all are right; labels may be names.
    predicted = model.predict(IMAGES)
    pair = (IMAGES[:, np.newaxis], np.array(predicted.names))
    assert model.evaluate(pair)["accuracy"] == 1.0
    assert model.evaluate({"data": pair[0], "label": predicted.numbers})["accuracy"] == 1.0
    wrong = "^array 'label': 77 is no class of the network .0 to 9.$"
    with pytest.raises(mxrun.UserError, match=wrong):
        model.evaluate((IMAGES[:3], [0, 1, 77]))
    with pytest.raises(mxrun.UserError, match="splt: unknown parameter 'splt'"):
        model.evaluate(splt="test")
    with pytest.raises(mxrun.UserError, match="the config has no data called ''"):
        model.evaluate("")


def test_wrong_names_and_callbacks_are_explained(trained: Path) -> None:
    model = mxrun.load(trained)
    with pytest.raises(KeyError, match="no metric 'acc'; measured: loss, accuracy, cross_entropy"):
        model.evaluate()["acc"]
    expected = (
        "callbacks cannot be called\n  expected: a function, or a list of functions\n  got: 3"
    )
    for callbacks in (3, [print, 3]):
        with pytest.raises(mxrun.UserError, match=f"^{expected}$"):
            model.fit(callbacks)  # type: ignore[arg-type]


def test_advice_is_python(trained: Path, empty_folder: Path) -> None:
    with pytest.raises(mxrun.UserError, match=r"use checkpoint=.newest.$"):
        mxrun.load(trained, checkpoint="best")
    wider = {"data.eval.transforms": [{"normalize": {"mean": 0.5, "std": 0.5}}]}
    with pytest.raises(mxrun.UserError, match="or use allow_changes=True: the results"):
        mxrun.load(trained, wider)
    # The weights after the only step give an evaluation that is not finite.
    diverging = {"train.max_steps": 1, "train.optimizer.sgd.lr": 1e30}
    with pytest.raises(mxrun.UserError, match=r"with fit\(resume=True, allow_changes=True\)$"):
        mxrun.load(DIGITS, diverging).fit(progress=False)


def test_numbers_of_records_are_checked_and_used(trained: Path) -> None:
    model = mxrun.load(trained)
    for batch in (0, -1, 2.5, "most"):
        for method in (model.evaluate, model.plan, model.fit):
            with pytest.raises(mxrun.UserError, match=f"^batch cannot be {batch!r}"):
                method(batch=batch)  # type: ignore[operator]
        with pytest.raises(mxrun.UserError, match=f"^batch cannot be {batch!r}"):
            model.predict(IMAGES, batch=batch)  # type: ignore[arg-type]
    with pytest.raises(mxrun.UserError, match=r"^errors cannot be -1"):
        model.evaluate(errors=-1)
    with pytest.raises(mxrun.UserError, match="memory"):
        model.evaluate(batch=1 << 30)
    assert model.evaluate(batch=np.int64(7)).records == model.evaluate().records  # type: ignore[arg-type]


def test_the_end_of_a_run_is_said_as_the_command_says_it(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = mxrun.load(DIGITS, {"train.max_steps": 3, "name": "a"}).fit(progress=True)
    assert (result.ended, result.why) == ("finished", "max_steps 3 reached")
    shown = capsys.readouterr().err
    start, values, *epochs = shown.splitlines()
    assert values == "data: images, 0..16 becomes 0..1"
    assert re.match("a: .* parameters, .*, 3 steps, [0-9]+ an epoch, batch ", start)
    # A file gets whole lines alone, without the metric that repeats the loss.
    assert re.fullmatch("epoch 1/1  loss [0-9.]+ .* eval loss [0-9.]+ .*", "".join(epochs))
    assert "cross_entropy" not in shown
    assert "\r" not in shown


def test_saving_does_not_replace_unasked(trained: Path, empty_folder: Path) -> None:
    model = mxrun.load(trained)
    for path in ("model", "model.onnx"):
        model.save(path)
        with pytest.raises(mxrun.UserError, match=f"^{path} exists\n  hint: overwrite=True"):
            model.save(path)
        model.save(path, overwrite=True)


def test_the_plan_is_the_command(empty_folder: Path) -> None:
    expected = json.loads(succeeded(command("inspect-memory", DIGITS, "--json")).stdout)
    plan = mxrun.load(DIGITS).plan()
    varying = ("outside", "planning_ms")
    found = json.loads(json.dumps(plan.to_json()))
    assert {**found, **{key: expected[key] for key in varying}} == expected
    sizes = [block.nbytes for block in plan.live_at_peak]
    assert sizes == sorted(sizes, reverse=True)
    assert plan.peak_bytes == sum(sizes) <= plan.planned_bytes
    assert max(block.offset + block.nbytes for block in plan.blocks) == plan.planned_bytes
    model = mxrun.load(DIGITS)
    assert model.plan("infer").planned_bytes < plan.planned_bytes
    assert model.plan(batch=1).planned_bytes < plan.planned_bytes


def test_assigned_parameters_are_used_and_saved(empty_folder: Path) -> None:
    model = mxrun.load(DIGITS, {**SHORT, "name": "mine", "train.epochs": 1})
    before = model.predict(IMAGES).values
    with pytest.raises(ValueError, match="read-only"):
        model.parameters["fc2_weight"][...] = 0
    weight = model.parameters["fc2_weight"].copy()
    weight[...] = 0
    assert np.array_equal(model.predict(IMAGES).values, before)
    model.parameters["fc2_weight"] = weight
    assert not np.array_equal(model.predict(IMAGES).values, before)
    with pytest.raises(mxrun.UserError, match=r"shape \[10, 64\]"):
        model.parameters["fc2_weight"] = weight.T
    with pytest.raises(mxrun.UserError, match="not finite"):
        model.parameters["fc2_weight"] = weight * np.nan
    with pytest.raises(KeyError, match="did you mean 'fc2_weight'"):
        model.parameters["fc2_wieght"] = weight
    model.save("kept")
    assert not mxrun.load("kept").parameters["fc2_weight"].any()
    assert np.array_equal(mxrun.load("kept").predict(IMAGES).values, model.predict(IMAGES).values)
    succeeded(command("evaluate", "kept"))
    result = model.fit(progress=False)
    assert result.summary["started_from"]["run"] == "<python>"
    # A resumed beginning has the assigned weights too, because they were saved before a step.
    other = mxrun.load("kept", {"name": "other", "train.epochs": 1})
    assert (
        saved(other.fit(progress=False).folder)["parameters.safetensors"]
        == (saved(result.folder)["parameters.safetensors"])
    )


def stop_after(epoch: int, stop: Callable[[], None]) -> Callable[[object], None]:
    def callback(event: object) -> None:
        if isinstance(event, mxrun.EpochDone) and event.epoch == epoch:
            stop()

    return callback


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def good_enough() -> None:
    raise mxrun.StopTraining("good enough")


def test_a_callback_stops_and_fit_resumes(trained: Path, empty_folder: Path) -> None:
    model = mxrun.load(DIGITS, {**SHORT, "name": "run"})
    events: list[object] = []
    stopped = model.fit([events.append, stop_after(1, good_enough)], progress=False)
    assert (stopped.ended, stopped.why.partition(":")[0]) == ("stopped", "good enough")
    assert stopped.why.endswith("; fit(resume=True) continues")
    assert [event.epoch for event in events if isinstance(event, mxrun.EpochDone)] == [1]
    assert saved(model.fit(resume=True, progress=False).folder) == saved(trained)


def test_S1_arrays_beside_a_run_are_counted_in_its_report(empty_folder: Path) -> None:
    """A second equal request makes no system allocation."""
    mxrun.nd.zeros((3, 50_000)).wait_to_read()
    held = []

    def allocate(event: object) -> None:
        if isinstance(event, mxrun.EpochDone):
            mxrun.nd.zeros((7, 50_000)).wait_to_read()
            held.append(mxrun.nd.zeros((11, 50_000)))

    config = {**SHORT, "name": "run", "train.epochs": 3}
    counters = mxrun.load(DIGITS, config).fit(allocate, progress=False).summary["storage"]["cpu:0"]
    assert counters["requests"] >= 6
    assert counters["requests_from_pool"] >= 2
    assert counters["requests_from_pool"] + counters["system_allocations"] == counters["requests"]
    assert counters["bytes_in_use"] >= sum(array.nbytes for array in held)
    assert counters["peak_bytes"] >= counters["bytes_in_use"] + 7 * 50_000 * 4 - held[0].nbytes
    written = json.loads(Path("runs/run/summary.json").read_text())
    assert written["storage"]["cpu:0"] == counters


def test_resuming_never_drops_other_weights(empty_folder: Path) -> None:
    model = mxrun.load(DIGITS, {**SHORT, "name": "run"})
    model.fit([stop_after(1, good_enough)], progress=False)
    model.parameters["fc2_weight"] = np.zeros_like(model.parameters["fc2_weight"])
    before = saved(Path("runs/run"))
    continues = "resume=True continues runs/run from its checkpoint, without the weights"
    with pytest.raises(mxrun.UserError, match=f"^{continues} that were assigned\n  hint: save"):
        model.fit(resume=True, progress=False)
    model.save("zeros")
    hint = r'train them as another run: mxrun.load\(\'zeros\', {"name": "other"}\).fit\(\)$'
    with pytest.raises(mxrun.UserError, match=f"^{continues} of zeros\n  hint: {hint}"):
        mxrun.load("zeros").fit(resume=True, progress=False)
    assert saved(Path("runs/run")) == before
    # The run that started from these weights, and the run itself, are continued.
    other = {"name": "other"}
    mxrun.load("zeros", other).fit([stop_after(2, good_enough)], progress=False)
    assert mxrun.load("zeros", other).fit(resume=True, progress=False).ended == "finished"
    assert mxrun.load("runs/run").fit(resume=True, progress=False).ended == "finished"
    # What is assigned after a run is the start of the next, with all other weights.
    model.parameters["fc2_bias"] = np.ones(10)
    weights = dict(model.parameters)
    model.fit(lambda event: good_enough(), overwrite=True, progress=False)
    first = mxrun.load("runs/run", checkpoint=0).parameters
    assert all((first[name] == weights[name]).all() for name in weights)


def test_ctrl_c_saves_and_raises(trained: Path, empty_folder: Path) -> None:
    model = mxrun.load(DIGITS, {**SHORT, "name": "run"})
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="saved in runs/run"):
        model.fit([stop_after(1, interrupt)], progress=False)
    assert signal.getsignal(signal.SIGINT) is before
    assert model.result is not None
    assert model.result.ended == "stopped"
    assert saved(model.fit(resume=True, progress=False).folder) == saved(trained)


def test_models_train_in_threads(trained: Path, empty_folder: Path) -> None:
    def train(folder: str) -> Path:
        model = mxrun.load(DIGITS, {**SHORT, "name": "run"}, runs=folder)
        return model.fit(progress=False).folder

    with ThreadPoolExecutor() as threads:
        folders = list(threads.map(train, ("a", "b", "c")))
    for folder in folders:
        assert saved(folder) == saved(trained)


def test_models_free_their_memory(empty_folder: Path) -> None:
    if resident_bytes() is None:
        pytest.skip("the system does not report resident bytes")

    def used(number: int) -> int:
        config = {"train.epochs": 1, "name": f"run{number}"}
        model = mxrun.load(DIGITS, {**config, "data.batch_size": 256})
        model.fit(progress=False)
        model.predict(np.zeros((256, 8, 8), np.uint8))
        del model
        gc.collect()
        resident = resident_bytes()
        assert resident is not None
        return resident.total

    arena = mxrun.load(DIGITS, {"data.batch_size": 256}).plan().planned_bytes
    figures = [used(number) for number in range(8)]
    assert figures[-1] - figures[2] < 2 * arena
