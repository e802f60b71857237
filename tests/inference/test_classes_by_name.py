"""Labels are read by the class names of the training part, in every other part."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import mxrun, result
from consoles import printed
from layer_configs import classifier, config_file, config_text
from PIL import Image
from refusals import only_problem

from mxrun.base.errors import Diagnostic, UserError
from mxrun.commands.infer import infer
from mxrun.commands.train import train
from mxrun.frontend import check_labels
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.request import open_datasets
from mxrun.options.infer import InferOptions
from mxrun.options.train import TrainOptions
from mxrun.preparation.planning import load
from mxrun.report.confusion import confusion_tables
from mxrun.report.infer import inference_table
from mxrun.report.progress import EpochLines
from mxrun.run.resume import state_differences
from mxrun.run.trained_model import TrainedModel

CONFIG = config_text(
    classifier(3, "head"),
    inputs="{data: [1, 4, 4], label: []}",
    data="""\
data:
  batch_size: 4
  train: {dataset: image_folder, path: images, split: train, shuffle: true}
  eval: {dataset: image_folder, split: test}
""",
    train="""\
train:
  epochs: 10
  optimizer: {sgd: {lr: 0.5}}
  metrics: [accuracy, confusion_matrix]
""",
)
# Values of the images of each class, distinct enough to be learned in a few steps.
ROWS = {"ant": 0, "bee": 1, "cat": 2, "dog": 3}


def images(folder: Path, *classes: str) -> None:
    for name in classes:
        (folder / name).mkdir(parents=True)
        pixels = np.zeros((4, 4), np.uint8)
        pixels[ROWS[name]] = 255
        for number in range(4):
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def written(folder: Path) -> Path:
    images(folder / "images" / "train", "ant", "bee", "cat")
    images(folder / "images" / "test", "bee", "cat")
    return config_file(folder, CONFIG)


def opened(path: Path, *overrides: str) -> dict[str, Dataset]:
    built = load(path, overrides)
    datasets = open_datasets(built.data, built.model.records)
    check_labels(built, datasets.values())
    return datasets


def problem(path: Path, *overrides: str) -> Diagnostic:
    return only_problem(opened, path, *overrides)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("named")
    result("train", str(written(folder)), cwd=folder)
    return folder


def test_a_part_without_some_classes_has_the_numbers_of_training(tmp_path: Path) -> None:
    datasets = opened(written(tmp_path))
    for dataset in datasets.values():
        assert dataset.classes == ("ant", "bee", "cat")
    assert datasets["eval"].fields["label"].records.tolist() == [1] * 4 + [2] * 4


def test_an_unknown_class_is_refused_with_both_sets(tmp_path: Path) -> None:
    path = written(tmp_path)
    images(tmp_path / "images" / "test", "dog")
    found = problem(path)
    assert found.place is not None
    assert (found.place.line, found.place.column) == (10, 19)
    assert "classes that training does not know: dog" in found.problem
    assert found.expected == "classes of training: ant, bee, cat"
    assert found.got == "bee, cat, dog"


def test_a_class_without_records_need_not_be_known(tmp_path: Path) -> None:
    path = written(tmp_path)
    (tmp_path / "images" / "test" / "dog").mkdir()
    assert opened(path)["eval"].classes == ("ant", "bee", "cat")


def test_a_class_without_records_cannot_be_learned(tmp_path: Path) -> None:
    path = written(tmp_path)
    (tmp_path / "images" / "train" / "dog").mkdir()
    found = problem(path)
    assert found.problem == "data.train (image_folder train) has classes without records"
    assert (found.expected, found.got) == ("records of each class", "dog")
    assert found.place is not None
    assert found.place.line == 9


def test_training_tells_of_images_that_are_of_no_class(tmp_path: Path) -> None:
    path = written(tmp_path)
    shutil.copy(tmp_path / "images" / "train" / "ant" / "0.png", tmp_path / "images" / "train")
    told = mxrun("train", str(path), "train.epochs=1", cwd=tmp_path).stderr
    assert "have no class and are left out: 0.png" in " ".join(told.split())


def test_numbers_stand_for_the_names_that_they_are(tmp_path: Path) -> None:
    """Digits are named by their numerals; labels of an archive have numbers only."""
    text = CONFIG.replace("[1, 4, 4]", "[1, 8, 8]").replace("num_hidden: 3", "num_hidden: 10")
    text = text.replace("dataset: image_folder, path: images, split: train", "dataset: digits")
    path = config_file(tmp_path, text.replace("image_folder, split: test", "npz, path: some.npz"))
    labels, data = np.array([7, 0, 9], np.int32), np.zeros((3, 1, 8, 8), np.float32)
    np.savez(tmp_path / "some.npz", data=data, label=labels)
    label = opened(path, "data.train.split=train")["eval"].fields["label"]
    assert label.records.tolist() == [7, 0, 9]
    np.savez(tmp_path / "some.npz", data=data, label=labels + 1)
    assert "does not know: 10" in problem(path, "data.train.split=train").problem


def test_names_that_are_their_own_numbers_are_numbers(tmp_path: Path) -> None:
    """Labels of an archive have numbers only, and the names of digits are these numbers."""
    text = CONFIG.replace("[1, 4, 4]", "[1, 8, 8]").replace("num_hidden: 3", "num_hidden: 10")
    text = text.replace("image_folder, path: images, split: train", "npz, path: some.npz")
    path = config_file(tmp_path, text.replace("image_folder, split: test", "digits, split: test"))
    labels, data = np.arange(10, dtype=np.int32), np.zeros((10, 1, 8, 8), np.float32)
    np.savez(tmp_path / "some.npz", data=data, label=labels)
    evaluated = opened(path)["eval"]
    assert set(evaluated.fields["label"].records.tolist()) == set(range(10))


def test_folders_called_by_numbers_have_these_numbers(tmp_path: Path) -> None:
    """Sorted as words, 10 comes before 9; if training has numbers, its class is 10 nevertheless."""
    text = CONFIG.replace("num_hidden: 3", "num_hidden: 11")
    text = text.replace("image_folder, path: images, split: train", "npz, path: some.npz")
    path = config_file(tmp_path, text.replace("split: test", "path: images, split: test"))
    labels, data = np.arange(11, dtype=np.int32), np.zeros((11, 1, 4, 4), np.float32)
    np.savez(tmp_path / "some.npz", data=data, label=labels)
    images(tmp_path, "ant", "bee")
    test = tmp_path / "images" / "test"
    test.mkdir(parents=True)
    (tmp_path / "ant").rename(test / "9")
    (tmp_path / "bee").rename(test / "10")
    evaluated = opened(path)["eval"]
    assert evaluated.fields["label"].records.tolist() == [10] * 4 + [9] * 4
    assert evaluated.classes == ()
    (test / "9").rename(test / "09")
    assert "those of training are numbers" in problem(path).problem


def test_a_head_of_another_size_than_the_named_classes_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    for size in (2, 4):
        path.write_text(CONFIG.replace("num_hidden: 3", f"num_hidden: {size}"))
        found = problem(path)
        assert f"FullyConnected 'head' has {size} outputs" in found.problem
        assert "net.yaml:9:20) has 3 classes" in found.problem
        assert str(found.place) == f"{path}:5:7"
        assert found.expected == "3 outputs, one for each class: ant, bee, cat"
        assert (found.got, found.hint) == (str(size), "write num_hidden: 3")


def test_a_single_class_is_named_in_the_singular(tmp_path: Path) -> None:
    for split in ("train", "test"):
        images(tmp_path / "images" / split, "ant")
    path = config_file(tmp_path, CONFIG)
    found = problem(path)
    assert "FullyConnected 'head' has 3 outputs" in found.problem
    assert "net.yaml:9:20) has one class" in found.problem
    assert found.expected == "one output for each class: ant"


@pytest.mark.parametrize(
    ("layers", "count"),
    [
        (
            "- FullyConnected: {name: head, num_hidden: 4}\n"
            "    - SliceChannel: {name: parts, num_outputs: 2}\n"
            "    - BlockGrad: {name: other, data: 'parts[1]'}\n"
            "    - SoftmaxOutput: {name: softmax, data: 'parts[0]', label: label}\n"
            "  outputs: [softmax, other]",
            2,
        ),
        (
            "- FullyConnected: {name: head, num_hidden: 1}\n"
            "    - FullyConnected: {name: more, num_hidden: 3, data: data}\n"
            "    - Concat: {name: both, inputs: [head, more], dim: 1}\n"
            "    - SoftmaxOutput: {name: softmax, label: label}",
            4,
        ),
    ],
)
def test_outputs_of_no_one_layer_are_told_as_those_of_the_loss(
    tmp_path: Path, layers: str, count: int
) -> None:
    path = written(tmp_path)
    old = CONFIG[CONFIG.index("- FullyConnected") : CONFIG.index("\ndata:")]
    path.write_text(CONFIG.replace(old, layers))
    found = problem(path)
    assert found.problem.startswith(f"{count} outputs reach SoftmaxOutput 'softmax', but data set")
    assert (found.got, found.hint) == (str(count), "give the loss one output per class")
    made = "{dataset: synthetic, split: train, records: 16, classes: 8}"
    found = problem(path, f"data.train={made}", "data.eval=null")
    assert f"no class for: {count} outputs reach SoftmaxOutput 'softmax'" in found.problem
    assert "num_hidden" not in found.hint


def test_a_head_is_seen_through_layers_that_keep_its_outputs(tmp_path: Path) -> None:
    path = written(tmp_path)
    text = CONFIG.replace("num_hidden: 3}", "num_hidden: 4}\n    - BatchNorm: {name: norm}")
    path.write_text(text)
    found = problem(path)
    assert "FullyConnected 'head' has 4 outputs" in found.problem
    assert found.hint == "write num_hidden: 3"


@pytest.mark.parametrize("low", [-1, 0])
def test_a_loss_that_predicts_nothing_has_its_classes_checked(tmp_path: Path, low: int) -> None:
    """softmax_cross_entropy reads labels as classes, though its output is one number."""
    path = written(tmp_path)
    text = CONFIG.replace("SoftmaxOutput", "softmax_cross_entropy").replace("1, 4, 4", "4")
    text = text.replace("[accuracy, confusion_matrix]", "[]")
    path.write_text(text)
    labels = np.arange(low, low + 4, dtype=np.int32)
    np.savez(tmp_path / "some.npz", data=np.zeros((4, 4), np.float32), label=labels)
    found = problem(
        path, f"data.train={{dataset: npz, path: {tmp_path}/some.npz}}", "data.eval=null"
    )
    assert "labels that the network has no class for: FullyConnected 'head'" in found.problem
    assert found.expected == ("4 outputs or more" if low == 0 else "labels 0 to 2")
    assert f"labels {low} to {low + 3}" in found.got
    (tmp_path / "some.csv").write_text("1,1,1,1,cat\n2,2,2,2,dog\n")
    table = f"data.train={{dataset: csv, path: {tmp_path}/some.csv, label: 4}}"
    found = problem(path, table, "data.eval=null")
    assert "has 3 outputs, but data set 'csv'" in found.problem
    assert found.expected == "2 outputs, one for each class: cat, dog"


def test_a_head_may_have_more_outputs_than_numbers_show(tmp_path: Path) -> None:
    path = written(tmp_path)
    made = "{dataset: synthetic, split: train, records: 16, classes: 4}"
    found = problem(path, f"data.train={made}", "data.eval=null")
    assert "labels that the network has no class for: FullyConnected 'head'" in found.problem
    assert (found.expected, found.hint) == ("4 outputs or more", "write num_hidden: 4")
    assert str(found.place) == f"{path}:5:7"
    opened(path, f"data.train={made.replace('4', '2')}", "data.eval=null")


def test_a_run_tells_the_names_of_its_classes(folder: Path) -> None:
    summary = json.loads((folder / "runs" / "net" / "summary.json").read_text())
    assert summary["classes"] == ["ant", "bee", "cat"]
    assert summary["eval"]["accuracy"] == 1.0


def test_a_start_from_other_classes_is_told(folder: Path, empty_folder: Path) -> None:
    for part in ("train", "test"):
        images(empty_folder / "images" / part, "ant", "cat", "dog")
    path = config_file(empty_folder, CONFIG.replace("epochs: 10", "epochs: 1"))
    source = folder / "runs" / "net"
    overrides = ("name=other", f"train.start_from.run={source}")
    messages: list[str] = []
    options = TrainOptions(config=str(path), overrides=overrides)
    train(options, EpochLines(messages.append))
    (told,) = [text for text in messages if "learned the classes" in text]
    assert told.endswith("learned the classes ant, bee, cat; this run has ant, cat, dog")
    same = ("name=same", overrides[1])
    messages.clear()
    shutil.rmtree(empty_folder / "images")
    shutil.copytree(folder / "images", empty_folder / "images")
    options = TrainOptions(config=str(path), overrides=same)
    train(options, EpochLines(messages.append))
    assert not any("learned the classes" in text for text in messages)


def test_inference_names_labels_as_training_did(folder: Path) -> None:
    """The part lacks the first class, so its own numbering would differ."""
    run = folder / "runs" / "net"
    assert TrainedModel.open(run).classes == ("ant", "bee", "cat")
    inference = infer(InferOptions(run=run, split="eval"))
    rows = list(inference.rows())
    assert [row["label_name"] for row in rows] == ["bee"] * 4 + ["cat"] * 4
    assert [row["label"] for row in rows] == [1] * 4 + [2] * 4
    assert [row["top"][0]["name"] for row in rows] == [row["label_name"] for row in rows]
    summary = inference.summary()
    assert summary["classes"] == ["ant", "bee", "cat"]
    assert summary["metrics"]["confusion_matrix"] == [[0, 0, 0], [0, 4, 0], [0, 0, 4]]
    tables = confusion_tables(summary["metrics"], inference.classes)
    shown = printed(inference_table("net", rows), *tables, width=100)
    cells = [line.split() for line in shown.splitlines()]
    assert ["label", "\\", "predicted", "ant", "bee", "cat"] in cells
    assert ["cat", "0", "0", "4"] in cells
    assert ["bee", "bee"] in [line[1:3] for line in cells]
    files = [
        str(Path("images/test", name, f"{i}.png")) for name in ("bee", "cat") for i in range(4)
    ]
    assert all(row["input"].endswith(file) for row, file in zip(rows, files, strict=True))
    assert {row["record"] for row in rows} == {0}


def test_inference_refuses_a_class_that_training_did_not_know(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "it")
    config = tmp_path / "it" / "runs" / "net" / "config.yaml"
    config.write_text(config.read_text().replace(str(folder), str(tmp_path / "it")))
    images(tmp_path / "it" / "images" / "test", "dog")
    with pytest.raises(UserError, match="classes that training does not know: dog"):
        infer(InferOptions(run=config.parent, split="eval"))


def test_other_classes_are_another_run(folder: Path) -> None:
    manifest = TrainedModel.open(folder / "runs" / "net").checkpoint.manifest
    now = manifest.model_copy(update={"classes": ("ant", "bee", "dog")})
    assert state_differences(manifest, now) == ["classes: ant, bee, cat then, ant, bee, dog now"]
