"""Trained networks on files and data sets: the same numbers as in the run's own evaluation."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import result
from layer_configs import classifier, config_text
from PIL import Image
from refusals import only_problem
from safetensors.numpy import load_file
from training import json_lines

from mxrun import library
from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.commands.infer import Inference, infer
from mxrun.io.dataset.request import open_datasets, request_dataset
from mxrun.options.infer import InferOptions
from mxrun.report.infer import write_csv
from mxrun.runtime.engine.default import engine, new_engine, using_engine
from mxrun.runtime.profiler import Event

NORMALIZED = config_text(
    """\
    - Convolution: {name: conv1, num_filter: 8, kernel: [3, 3]}
    - BatchNorm: {name: bn1, fix_gamma: false}
    - Activation: {name: relu1, act_type: relu}
    - Dropout: {p: 0.5}
    - FullyConnected: {name: fc1, num_hidden: 10}
    - SoftmaxOutput: {name: softmax, label: label}
""",
    name="normalized",
    train="train: {epochs: 2, average: 0.9, optimizer: {sgd: {lr: 0.1, momentum: 0.9}}}\n",
)


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A folder with two trained runs."""
    folder = tmp_path_factory.mktemp("work")
    best = "train.checkpoint.best=accuracy"
    result("train", "digits_lenet", "train.epochs=3", best, cwd=folder)
    (folder / "normalized.yaml").write_text(NORMALIZED)
    result("train", "normalized.yaml", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def lenet(work) -> Path:
    return work / "runs" / "digits_lenet"


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    """The test split as the network sees it: float32 [359, 1, 8, 8]."""
    library.load()
    inputs = {"data": TensorSpec((1, 8, 8)), "label": TensorSpec((), "int32")}
    dataset = open_datasets({"eval": request_dataset("digits", {}, "test")}, inputs)["eval"]
    return dataset.fields["data"].records.astype(np.float32) / 16


def inferred(run: Path, *inputs: Path, **options) -> Inference:
    given = tuple(map(str, inputs))
    return infer(InferOptions(run=run, inputs=given, **options))


def arrays(inference: Inference) -> dict[str, np.ndarray]:
    batches = [batch.arrays for batch in inference.batches()]
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def classes(inference: Inference) -> list[int]:
    return [row["top"][0]["class"] for row in inference.rows()]


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_batches_are_loaded_and_run_as_functions_of_the_engine(
    lenet: Path, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(lenet, run)
    config = run / "config.yaml"
    config.write_text(config.read_text() + f"engine: {kind}\n")
    events = list[Event]()
    with using_engine(new_engine(kind)):
        engine().record(events.append)
        inference = infer(InferOptions(run=run, split="eval", batch=64))
        list(inference.rows())
        engine().record(None)
    names = [event.name for event in events if event.name in ("load", "evaluate")]
    assert names == ["load", "evaluate"] * 6 + ["load"]
    plain = infer(InferOptions(run=lenet, split="eval", batch=64))
    list(plain.rows())
    assert inference.metrics == plain.metrics


@pytest.mark.parametrize("name", ["digits_lenet", "normalized"])
def test_O2_a_split_measures_what_the_run_measured(work, name):
    run = work / "runs" / name
    inference = inferred(run, split="eval", checkpoint="newest")
    rows = list(inference.rows())
    summary = inference.summary()
    last = json_lines(run / "metrics.jsonl")[-1]
    assert summary["metrics"] == pytest.approx(last["eval"], rel=1e-6)
    hits = [row["top"][0]["class"] == row["label"] for row in rows]
    assert np.mean(hits) == pytest.approx(summary["metrics"]["accuracy"])
    assert [row["record"] for row in rows] == list(range(359))
    again = arrays(inferred(run, split="eval", checkpoint="newest"))
    first = arrays(inferred(run, split="eval", checkpoint="newest"))
    assert again["softmax_output"].tobytes() == first["softmax_output"].tobytes()


def test_files_of_each_kind_give_the_classes_of_the_split(lenet, digits, tmp_path):
    expected = classes(inferred(lenet, split="eval"))[:40]
    np.save(tmp_path / "some.npy", digits[:40])
    np.savetxt(tmp_path / "some.csv", digits[:40].reshape(40, 64), delimiter=",")
    images = tmp_path / "images"
    images.mkdir()
    for number, digit in enumerate(digits[:40]):
        pixels = np.round(digit[0] * 255).astype(np.uint8)
        Image.fromarray(pixels).save(images / f"{number:02}.png")
    assert classes(inferred(lenet, tmp_path / "some.npy")) == expected
    assert classes(inferred(lenet, tmp_path / "some.csv")) == expected
    np.save(tmp_path / "bytes.npy", (digits[:40] * 16).astype(np.uint8))
    assert classes(inferred(lenet, tmp_path / "bytes.npy")) == expected
    # Bytes are sixteenths only to a 255th.
    in_images = classes(inferred(lenet, images))
    assert np.mean(np.equal(in_images, expected)) >= 0.95


def test_files_of_a_folder_come_sorted_and_their_order_changes_no_result(lenet, digits, tmp_path):
    (tmp_path / "a").mkdir()
    names = ["b.npy", "a/z.npy", "c.npy"]
    for name, digit in zip(names, digits, strict=False):
        np.save(tmp_path / name, digit)
    (tmp_path / ".hidden.npy").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("no records")
    rows = list(inferred(lenet, tmp_path).rows())
    assert [row["input"] for row in rows] == [str(tmp_path / name) for name in sorted(names)]
    backwards = inferred(lenet, *(tmp_path / name for name in sorted(names, reverse=True)))
    for row, other in zip(rows, reversed(list(backwards.rows())), strict=True):
        assert row["input"] == other["input"]
        probability = pytest.approx(other["top"][0]["probability"], rel=1e-5)
        assert row["top"][0]["probability"] == probability


@pytest.mark.parametrize("name", ["digits_lenet", "normalized"])
@pytest.mark.parametrize("batch", [1, 7])
def test_the_batch_size_changes_no_result(work, digits, tmp_path, name, batch):
    run = work / "runs" / name
    np.save(tmp_path / "some.npy", digits[:100])
    small, large = (
        inferred(run, tmp_path / "some.npy", batch=batch),
        inferred(run, tmp_path / "some.npy", batch=64),
    )
    assert (small.batch_size, large.batch_size) == (batch, 64)
    found, expected = arrays(small)["softmax_output"], arrays(large)["softmax_output"]
    assert found.shape == (100, 10)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_pipe_in_a_folder_is_not_waited_for(lenet, digits, tmp_path):
    np.save(tmp_path / "a.npy", digits[0])
    os.mkfifo(tmp_path / "b.npy")
    with pytest.raises(UserError, match=r"b\.npy: not a regular file"):
        inferred(lenet, tmp_path)


def test_no_batch_is_larger_than_what_there_is(lenet, digits, tmp_path):
    np.save(tmp_path / "one.npy", digits[0])
    assert inferred(lenet, tmp_path / "one.npy").batch_size == 1


def convolved(data: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return a 3x3 convolution with a border of one zero, in float64."""
    padded = np.pad(data.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight) + bias[:, None, None]


def test_X2_outputs_names_internals(lenet, digits, tmp_path):
    np.save(tmp_path / "some.npy", digits[:10])
    inference = inferred(lenet, tmp_path / "some.npy", outputs=("relu1", "fc1_output", "data"))
    found = arrays(inference)
    weights = load_file(inference.trained.checkpoint.folder / "parameters.safetensors")
    relu1 = np.maximum(convolved(digits[:10], weights["conv1_weight"], weights["conv1_bias"]), 0)
    np.testing.assert_allclose(found["relu1"], relu1, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found["data"], digits[:10])
    assert found["fc1_output"].shape == (10, 64)
    rows = list(inferred(lenet, tmp_path / "some.npy", outputs=("relu1", "fc1_output")).rows())
    assert (
        np.float32(rows[3]["outputs"]["relu1"]["output"]).tobytes() == found["relu1"][3].tobytes()
    )


def test_X2_an_unknown_name_gets_the_nearest(lenet):
    with pytest.raises(UserError, match=r"(?s)no layer or output 'fcc1'.*did you mean 'fc1'"):
        inferred(lenet, split="eval", outputs=("fcc1", "relu1"))
    with pytest.raises(UserError, match=f"hint: `mxrun plot {lenet}/config.yaml` draws them all"):
        inferred(lenet, split="eval", outputs=("quite_another",))
    with pytest.raises(UserError, match="'fc1_weight' does not depend on the network's inputs"):
        inferred(lenet, split="eval", outputs=("fc1_weight",))


def test_averages_stand_in_for_weights(work, digits):
    run = work / "runs" / "normalized"
    inference = inferred(run, split="eval", outputs=("conv1",))
    assert inference.summary()["averaged"]
    assert "moving averages" in inference.trained.notes[-1]
    optimizer = load_file(inference.trained.checkpoint.folder / "optimizer.safetensors")
    weight, bias = (optimizer[f"conv1_{kind}:average"] for kind in ("weight", "bias"))
    expected = convolved(digits, weight, bias)[:, :, 1:-1, 1:-1]
    np.testing.assert_allclose(arrays(inference)["conv1"], expected, rtol=1e-4, atol=1e-5)


def test_which_checkpoint(lenet, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(lenet, run)
    steps = {
        which: inferred(run, split="eval", checkpoint=which).summary()["step"]
        for which in (None, "best", "newest", "23")
    }
    epochs = json_lines(run / "metrics.jsonl")
    best = max(epochs, key=lambda epoch: (epoch["eval"]["accuracy"], -epoch["epoch"]))["step"]
    assert steps == {None: best, "best": best, "newest": 69, "23": 23}
    one = inferred(run / "checkpoint-46", split="eval")
    assert one.summary()["step"] == 46
    with pytest.raises(UserError, match=r"(?s)no checkpoint '5' in.*a step: 23, 46, 69"):
        inferred(run, split="eval", checkpoint="5")
    with pytest.raises(UserError, match="one checkpoint already"):
        inferred(run / "checkpoint-46", split="eval", checkpoint="best")


def test_a_damaged_checkpoint_is_passed_over_unless_it_is_asked_for(lenet, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(lenet, run)
    best = inferred(run, split="eval").trained.checkpoint.folder
    (best / "parameters.safetensors").write_bytes(b"damaged")
    inference = inferred(run, split="eval")
    assert inference.trained.checkpoint.folder != best
    assert "wrong size" in inference.trained.notes[0]
    with pytest.raises(UserError, match="wrong size"):
        inferred(run, split="eval", checkpoint="best")


def test_arrays_of_another_network_are_told_at_once(lenet, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(lenet, run)
    config = run / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("num_hidden: 64", "num_hidden: 32").replace("conv2", "conv9"))
    with pytest.raises(UserError, match="was trained with other settings"):
        inferred(run, split="eval")
    diagnostic = only_problem(inferred, run, split="eval", allow_changes=True)
    assert "conv9_weight [32, 16, 3, 3]: not there" in diagnostic.got
    assert "fc1_bias [32]: [64] there" in diagnostic.got
    # Parameters that the requested layers do not need may be missing.
    assert inferred(run, split="eval", outputs=("relu1",), allow_changes=True).outputs


def test_what_is_no_run(work, tmp_path, monkeypatch):
    monkeypatch.chdir(work)
    assert inferred(Path("digits_lenet"), split="eval")
    wrong = r"digits_lenets is not a run(?s:.)*`mxrun runs` lists runs"
    with pytest.raises(UserError, match=wrong):
        inferred(Path("digits_lenets"), split="eval")
    shutil.copytree(work / "runs/digits_lenet/checkpoint-69", tmp_path / "checkpoint-69")
    with pytest.raises(UserError, match="is a checkpoint, but its run's"):
        inferred(tmp_path / "checkpoint-69", split="eval")

    Path("d.npz").touch()
    with pytest.raises(UserError, match=r"d\.npz is not a run(?s:.)*got: a file"):
        inferred(Path("d.npz"), split="eval")


TABLE = """\
name: table
network:
  inputs: {data: [3], label: []}
  layers:
    - FullyConnected: {name: fc1, num_hidden: 1}
    - LinearRegressionOutput: {name: out, label: label}
data:
  batch_size: 2
  train: {dataset: csv, path: data.csv, header: true, delimiter: ";"}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}
"""


def test_tables_are_read_as_the_config_has_its_own(empty_folder):
    Path("net.yaml").write_text(TABLE)
    Path("data.csv").write_text("a;b;c;label\n1;2;3;4\n5;6;7;8\n")
    result("train", "net.yaml", cwd=empty_folder)
    Path("named.csv").write_text('"a";"b";"c"\n1;2;3\n5;6;7\n')
    Path("bare.csv").write_text("1;2;3\n5;6;7\n")
    named, bare = (
        arrays(inferred(Path("runs/table"), Path(name)))["out_output"]
        for name in ("named.csv", "bare.csv")
    )
    assert named.shape == (2, 1)
    assert named.tobytes() == bare.tobytes()


def test_other_records_in_a_data_section_are_told(empty_folder):
    Path("net.yaml").write_text(TABLE)
    for name in ("data.csv", "other.csv"):
        Path(name).write_text("a;b;c;label\n1;2;3;4\n5;6;7;8\n")
    result("train", "net.yaml", "data.eval={dataset: csv, path: other.csv}", cwd=empty_folder)
    run = Path("runs/table")
    notes = {split: inferred(run, split=split).notes for split in ("train", "eval")}
    assert not [note for notes in notes.values() for note in notes if "are not those" in note]
    Path("other.csv").write_text("a;b;c;label\n1;2;3;4\n5;6;7;9\n")
    assert inferred(run, split="train").notes == notes["train"]
    changed = "the records of data.eval are not those of the run"
    assert inferred(run, split="eval").notes == (*notes["eval"], changed)


def test_the_labels_of_a_regression_are_written_beside_what_it_gives(empty_folder):
    Path("net.yaml").write_text(TABLE)
    Path("data.csv").write_text("a;b;c;label\n1;2;3;4\n5;6;7;8.5\n")
    result("train", "net.yaml", cwd=empty_folder)
    rows = list(inferred(Path("runs/table"), split="train").rows())
    assert [row["label"] for row in rows] == [4.0, 8.5]
    # Several numbers for each record: a list, in CSV a column each.
    wide = TABLE.replace("label: []", "label: [2]").replace("num_hidden: 1", "num_hidden: 2")
    reads = "{dataset: npz, path: data.npz}"
    wide = wide.replace('{dataset: csv, path: data.csv, header: true, delimiter: ";"}', reads)
    Path("wide.yaml").write_text(wide.replace("name: table", "name: wide"))
    targets = np.array([[1, 2.5], [3, 4]], np.float32)
    np.savez("data.npz", data=np.ones((2, 3), np.float32), label=targets)
    result("train", "wide.yaml", cwd=empty_folder)
    rows = list(inferred(Path("runs/wide"), split="train").rows())
    assert [row["label"] for row in rows] == targets.tolist()
    write_csv(rows, Path("rows.csv"))
    header, first, _ = Path("rows.csv").read_text().splitlines()
    assert header == "input,record,label_0,label_1,output_0,output_1"
    assert first.startswith("data.npz,0,1.0,2.5,")


def test_records_that_do_not_fit_are_told_with_what_to_do(lenet, tmp_path):
    np.save(tmp_path / "large.npy", np.zeros((2, 9, 9), np.float32))
    np.save(tmp_path / "colour.npy", np.zeros((3, 8, 8, 3), np.float32))
    np.save(tmp_path / "deep.npy", np.zeros((2, 3, 8, 8), np.float32))
    (tmp_path / "short.csv").write_text("1,2,3\n")
    advice = {
        "large.npy": "resize",
        "colour.npy": "axes are channels, height and width; the network reads 1 channel",
        "deep.npy": "the network reads 1 channel",
        "short.csv": "a row needs 64 numbers",
    }
    for name, hint in advice.items():
        with pytest.raises(UserError, match=f"(?s){name}: record 0 does not fit.*hint: .*{hint}"):
            inferred(lenet, tmp_path / name)
    np.save(tmp_path / "none.npy", np.zeros((0, 1, 8, 8), np.float32))
    with pytest.raises(UserError, match="there are no records"):
        inferred(lenet, tmp_path / "none.npy")


def test_names_of_classes_are_learned_with_the_network(tmp_path, digits):
    """The names of the folders are in the checkpoint; a file of names overrides them."""
    for number in range(40):
        folder = tmp_path / "images" / ("even" if number % 2 == 0 else "odd")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.full((12, 10), 40 if number % 2 else 200, np.uint8) + np.uint8(number)
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
    data = (
        "data:\n"
        "  batch_size: 8\n"
        f"  train: {{dataset: image_folder, path: {tmp_path / 'images'}, split: all,\n"
        "    shuffle: true, transforms: [{resize: {size: [8, 8]}}, {flip: {}}]}\n"
    )
    train = "train: {epochs: 20, optimizer: {sgd: {lr: 0.1}}}\n"
    (tmp_path / "net.yaml").write_text(config_text(classifier(2), data=data, train=train))
    result("train", "net.yaml", cwd=tmp_path)
    run = tmp_path / "runs" / "net"
    from_split = list(inferred(run, split="train", top=2).rows())
    from_files = list(inferred(run, tmp_path / "images", top=2).rows())
    for row, other in zip(from_split, from_files, strict=True):
        name = Path(other["input"]).parent.name
        assert row["top"][0]["name"] == other["top"][0]["name"] == name
        assert row["top"] == other["top"]
        assert ("even", "odd")[row["label"]] == name
    (tmp_path / "names.txt").write_text("gerade\nungerade\n")
    named = inferred(run, tmp_path / "images", classes=tmp_path / "names.txt")
    assert {row["top"][0]["name"] for row in named.rows()} == {"gerade", "ungerade"}
    (tmp_path / "names.txt").write_text("gerade\n")
    with pytest.raises(UserError, match=r"(?s)number of class names differs.*got: 1"):
        inferred(run, tmp_path / "images", classes=tmp_path / "names.txt")


LOSSES = """\
name: losses
network:
  inputs: {data: [1, 8, 8], label: []}
  layers:
    - Reshape: {name: flat, shape: [TIED, 64]}
    - FullyConnected: {name: fc1, num_hidden: 10}
    - softmax_cross_entropy: {name: loss, label: label}
data:
  batch_size: 16
  train: {dataset: digits, split: train, shuffle: true}
train: {epochs: 1, metrics: [], optimizer: {sgd: {lr: 0.1}}}
"""


@pytest.mark.parametrize("tied", ["-1", "16"])
def test_a_network_that_ends_in_its_loss(tmp_path, digits, tied):
    (tmp_path / "losses.yaml").write_text(LOSSES.replace("TIED", tied))
    result("train", "losses.yaml", cwd=tmp_path)
    run = tmp_path / "runs" / "losses"
    np.save(tmp_path / "some.npy", digits[:5])
    with pytest.raises(UserError, match=r"(?s)depend on labels.*--outputs"):
        inferred(run, tmp_path / "some.npy", outputs=("loss",))
    with pytest.raises(UserError, match="'loss' has no row for each sample"):
        inferred(run, split="train", outputs=("loss",))
    # The softmax of the data replaces the loss.
    scores = arrays(inferred(run, tmp_path / "some.npy", outputs=("fc1",)))["fc1"]
    powers = np.exp(scores.astype(np.float64))
    of_files = arrays(inferred(run, tmp_path / "some.npy"))["loss_softmax_output"]
    np.testing.assert_allclose(of_files, powers / powers.sum(1, keepdims=True), rtol=1e-4)
    from_split = inferred(run, split="train", top=10)
    chances = [
        next(each["probability"] for each in row["top"] if each["class"] == row["label"])
        for row in from_split.rows()
    ]
    loss = from_split.summary()["metrics"]["loss"]
    assert loss == pytest.approx(-np.mean(np.log(chances)), rel=1e-4)
    inference = inferred(run, tmp_path / "some.npy", outputs=("fc1",), top=3)
    assert inference.batch_size == (5 if tied == "-1" else 16)
    (row, *_) = rows = list(inference.rows())
    assert len(rows) == 5
    assert [sorted(each) for each in row["top"]] == [["class", "name", "value"]] * 3
    values = [each["value"] for each in row["top"]]
    assert values == sorted(values, reverse=True)
    if tied == "16":
        with pytest.raises(UserError, match=r"losses/config\.yaml:"):
            inferred(run, tmp_path / "some.npy", outputs=("fc1",), batch=3)


def test_an_autoencoder_needs_no_labels(tmp_path, digits):
    result("train", "autoencoder_digits", "train.epochs=1", cwd=tmp_path)
    run = tmp_path / "runs" / "autoencoder_digits"
    np.save(tmp_path / "some.npy", digits)
    from_file = arrays(inferred(run, tmp_path / "some.npy"))["image_output"]
    assert from_file.shape == (359, 1, 8, 8)
    from_split = inferred(run, split="eval")
    np.testing.assert_allclose(arrays(from_split)["image_output"], from_file, rtol=1e-5)
    measured = from_split.summary()["metrics"]
    assert measured["mse"] == pytest.approx(np.mean((from_file - digits) ** 2), rel=1e-4)
