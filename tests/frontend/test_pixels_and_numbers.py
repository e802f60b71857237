"""Images are scaled by their role, which the run records; the dtype of an array decides nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import mxrun, refused, succeeded
from PIL import Image

import mxrun as package

NET = """name: {name}
network:
  inputs: {{data: [1, 8, 8], label: []}}
  layers: [BatchNorm: {{}}, FullyConnected: {{num_hidden: 2}}, SoftmaxOutput: {{label: label}}]
data:
  batch_size: 8
  train: {{{train}, shuffle: true}}
  eval: {{{evaluation}}}
train: {{epochs: 20, optimizer: {{sgd: {{lr: 0.05}}}}}}
"""
FOLDER = "dataset: image_folder, path: images"
DTYPES = ("uint8", "int64", "float32", "float64")


@pytest.fixture(autouse=True)
def here(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same 80 images as PNG files and as archives of several dtypes."""
    folder = tmp_path_factory.mktemp("pixels")
    pixels, labels = records()
    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        file = folder / f"images/{label}/{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0]).save(file)
    for dtype in DTYPES:
        np.savez(folder / f"{dtype}.npz", data=pixels.astype(dtype), label=labels)
    np.savez(folder / "unit.npz", data=pixels / np.float32(255), label=labels)
    return folder


def records() -> tuple[np.ndarray, np.ndarray]:
    drawn, labels = np.random.default_rng(0), np.arange(80) % 2
    pixels = drawn.integers(0, 100, (80, 1, 8, 8))
    pixels[labels == 1, :, :4] += 120
    return pixels.astype(np.uint8), labels


def trained(work: Path, name: str, train: str, evaluation: str | None = None) -> Any:
    text = NET.format(name=name, train=train, evaluation=evaluation or train)
    (work / f"{name}.yaml").write_text(text)
    return fitted(work / f"{name}.yaml")


def fitted(config: Path) -> Any:
    model = package.load(str(config))
    model.fit(progress=False, overwrite=True)
    return model


@pytest.mark.parametrize("train", ["dataset: npz, path: float32.npz", FOLDER])
def test_every_source_of_the_same_images_is_read_alike(work: Path, train: str) -> None:
    """Numbers stay numbers in a run on numbers, and pixels pixels in a run on images."""
    model = trained(work, "alike", train)
    pixels, labels = records()
    expected = np.asarray(model.predict(pixels))
    accuracy = (expected.argmax(1) == labels).mean()
    assert accuracy > 0.9
    for dtype in DTYPES:
        assert np.array_equal(np.asarray(model.predict(pixels.astype(dtype))), expected)
        assert model.evaluate(f"{dtype}.npz")["accuracy"] == accuracy
        assert model.evaluate((pixels.astype(dtype), labels))["accuracy"] == accuracy
    assert model.evaluate("images")["accuracy"] == accuracy
    file = np.asarray(model.predict("images/0/0.png"))[0]
    assert np.abs(file - expected[0]).max() < 1e-6


def test_a_network_of_images_takes_fractions_with_a_word(work: Path) -> None:
    model = trained(work, "images", FOLDER)
    pixels, labels = records()
    expected = np.asarray(model.predict(pixels))
    prediction = model.predict(pixels / np.float32(255))
    assert np.abs(np.asarray(prediction) - expected).max() < 1e-6
    right = (expected.argmax(1) == labels).mean()
    of_file, of_arrays = model.evaluate("unit.npz"), model.evaluate((pixels / 255, labels))
    for found in (of_file, of_arrays):
        assert found["accuracy"] == right
    for notes in (prediction.notes, of_file.notes, of_arrays.notes):
        assert "data: images, 0..1 becomes 0..1" in " ".join(notes)
    for wrong in (pixels.astype(np.int64) * 2, -pixels.astype(np.float32)):
        with pytest.raises(package.UserError, match="not the pixels of images"):
            model.predict(wrong)


def test_a_network_of_numbers_reads_image_files_with_a_word(work: Path) -> None:
    trained(work, "numbers", "dataset: npz, path: float64.npz")
    done = succeeded(mxrun("evaluate", "runs/numbers", "images", cwd=work))
    assert "is read as the records of training: data: numbers as they are" in done.stderr
    done = succeeded(mxrun("infer", "runs/numbers", "images/0/0.png", cwd=work))
    assert "trained on numbers, not on images" in done.stderr


def test_declared_arrays_are_images_of_any_dtype(work: Path) -> None:
    """Runs on declared arrays of any dtype, in memory or not, and on files give the same bits."""
    weights = {}
    for dtype in ("uint8", "float64"):
        for in_memory in ("true", "false"):
            train = (
                f"dataset: npz, path: {dtype}.npz, images: {{data: 255}}, in_memory: {in_memory}"
            )
            model = trained(work, "declared", train)
            weights[dtype, in_memory] = model.parameters["fullyconnected0_weight"].tobytes()
    assert len(set(weights.values())) == 1
    assert model.evaluate("images")["accuracy"] == model.evaluate()["accuracy"] > 0.9
    undeclared = trained(work, "undeclared", "dataset: npz, path: uint8.npz")
    assert undeclared.parameters["fullyconnected0_weight"].tobytes() not in weights.values()


def test_evaluation_while_training_reads_its_records_as_training_does(work: Path) -> None:
    for name, train, evaluation in (
        ("first", "dataset: npz, path: float32.npz", FOLDER),
        ("second", FOLDER, "dataset: npz, path: int64.npz"),
    ):
        trained(work, name, train, evaluation)
        summary = json.loads((work / f"runs/{name}/summary.json").read_text())
        assert summary["eval"]["accuracy"] > 0.9


def test_the_decision_is_said_in_one_line(work: Path) -> None:
    for train, said in (
        (FOLDER, "data: images, 0..255 becomes 0..1"),
        ("dataset: npz, path: uint8.npz", "data: numbers as they are"),
        ("dataset: npz, path: uint8.npz, images: {data: 219}", "data: images, 0..219 becomes 0..1"),
    ):
        (work / "said.yaml").write_text(NET.format(name="said", train=train, evaluation=train))
        for command in (("check",), ("datasets", "stats"), ("train",)):
            more = ("--overwrite", "train.epochs=1") if command == ("train",) else ()
            done = succeeded(mxrun(*command, "said.yaml", *more, cwd=work))
            assert said in [line.strip() for line in (done.stdout + done.stderr).splitlines()]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("path: uint8.npz, images: {data: 100}", "not the pixels of images"),
        ("path: unit.npz, images: {data: 255}", "write `images: {INPUT: 1}`"),
        ("path: uint8.npz, images: {dta: 255}", "did you mean 'data'?"),
        ("path: uint8.npz, images: {label: 255}", "no float32 input 'label'"),
        (
            "path: uint8.npz, transforms: [{color_jitter: {brightness: 0.2}}]",
            "but the records of 'data' are numbers",
        ),
    ],
)
def test_wrong_declarations_are_refused(work: Path, options: str, said: str) -> None:
    train = f"dataset: npz, {options}"
    (work / "wrong.yaml").write_text(NET.format(name="wrong", train=train, evaluation=train))
    assert said in refused("train", "wrong.yaml", "--overwrite", cwd=work)


FLAT = """name: {name}
network:
  inputs: {{data: [4], label: [{labels}]}}
  layers: [FullyConnected: {{num_hidden: {hidden}}}, {loss}: {{label: label}}]
data: {{batch_size: 8, {data}}}
train: {{epochs: 20, optimizer: {{sgd: {{lr: 0.01}}}}, metrics: [{metric}]}}
"""


@pytest.mark.parametrize(
    ("labels", "hidden", "loss", "metric"),
    [
        ("3", 3, "LogisticRegressionOutput", "binary_accuracy"),
        ("", 1, "LinearRegressionOutput", "mse"),
    ],
)
def test_labels_of_bytes_are_the_numbers_they_are(
    work: Path, labels: str, hidden: int, loss: str, metric: str
) -> None:
    drawn = np.random.default_rng(1)
    data = drawn.normal(size=(96, 4)).astype(np.float32)
    numbers = (data[:, :3] > 0) if labels else np.rint(50 + 9 * data[:, 0])
    found = {}
    for dtype in ("uint8", "float32"):
        np.savez(work / "labels.npz", data=data, label=numbers.astype(dtype))
        section = "{dataset: npz, path: labels.npz}"
        given = f"train: {section}, eval: {section}"
        text = FLAT.format(
            name=dtype, labels=labels, hidden=hidden, loss=loss, metric=metric, data=given
        )
        (work / f"{dtype}.yaml").write_text(text)
        model = fitted(work / f"{dtype}.yaml")
        output = np.asarray(model.predict(data)).reshape(numbers.shape).astype(np.float64)
        right = ((output > 0.5) == numbers).mean() if labels else ((output - numbers) ** 2).mean()
        assert model.evaluate()[metric] == pytest.approx(right, rel=1e-5)
        given_arrays = model.evaluate((data, numbers.astype(dtype)))
        assert given_arrays[metric] == pytest.approx(right, rel=1e-5)
        found[dtype] = model.parameters["fullyconnected0_weight"].tobytes()
    assert found["uint8"] == found["float32"]


def test_masks_and_features_of_bytes_keep_their_values(work: Path) -> None:
    mask = np.tile([1, 1, 0, 7], (8, 1)).astype(np.uint8)
    data = np.ones((8, 4), np.float32)
    for in_memory in ("true", "false"):
        np.savez(work / "mask.npz", data=data, mask=mask, label=np.arange(8) % 2)
        (work / "mask.yaml").write_text(
            "name: mask\nnetwork:\n  inputs: {data: [4], mask: [4], label: []}\n  layers:\n"
            "    - elemwise_mul: {name: product, lhs: data, rhs: mask}\n"
            "    - FullyConnected: {num_hidden: 2}\n    - SoftmaxOutput: {label: label}\n"
            f"data: {{batch_size: 4, train: {{dataset: npz, path: mask.npz, "
            f"in_memory: {in_memory}}}}}\ntrain: {{epochs: 1, optimizer: sgd}}\n"
        )
        done = succeeded(mxrun("datasets", "stats", "mask.yaml", "--json", cwd=work))
        fields = json.loads(done.stdout)["sections"]["train"]["fields"]
        assert fields["mask"]["max"] == [1, 1, 0, 7]
        product = fitted(work / "mask.yaml").predict(
            {"data": data, "mask": mask}, outputs=["product"]
        )
        assert np.array_equal(np.asarray(product), mask)


PLUGIN = """import numpy as np
from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs, LazyField
from mxrun.io.dataset.registry import register
class Options(Parameters):
    lazy: bool = False
@register("scaled", Options, ("all",), lazy=True)
def read(options: Options, split: str, inputs: Inputs) -> Dataset:
    found = np.load("uint8.npz")
    data, label = found["data"], {"label": Field(found["label"].astype("int32"))}
    if options.lazy:
        lazy = LazyField(data.__getitem__, len(data), data.shape[1:], "uint8", 1 / 255)
        return Dataset("scaled", label, (), split, lazy={"data": lazy})
    return Dataset("scaled", {"data": Field(data, 1 / 255), **label}, (), split)
"""


@pytest.mark.parametrize("lazy", ["true", "false"])
def test_what_a_plugin_scales_are_images(work: Path, lazy: str) -> None:
    (work / "scaled.py").write_text(PLUGIN)
    train = f"dataset: scaled, lazy: {lazy}"
    text = NET.format(name="plugged", train=train, evaluation=train)
    (work / "plugged.yaml").write_text(f"plugins: [scaled.py]\n{text}")
    done = succeeded(mxrun("train", "plugged.yaml", "--overwrite", cwd=work))
    assert "data: images, 0..255 becomes 0..1" in done.stdout + done.stderr
    np.save(work / "first.npy", records()[0][0])
    found = []
    for path in ("images/0/0.png", "first.npy"):
        done = succeeded(
            mxrun("infer", "runs/plugged", path, "--allow-plugins", "--json", cwd=work)
        )
        (result,) = json.loads(done.stdout)["results"]
        found.append(result["top"][0]["probability"])
    assert found[0] == pytest.approx(found[1], abs=1e-6)
    done = succeeded(mxrun("evaluate", "runs/plugged", "images", "--json", cwd=work))
    assert json.loads(done.stdout)["metrics"]["accuracy"] > 0.9


def test_a_model_of_image_files_that_are_not_there_reads_images(work: Path) -> None:
    text = NET.format(name="pathless", train="dataset: image_folder", evaluation="split: rest")
    text = text.replace("  eval: {split: rest}\n", "")
    (work / "pathless.yaml").write_text(text)
    model = package.load("pathless.yaml")
    found = [np.asarray(model.predict(each))[0] for each in (records()[0][:1], "images/0/0.png")]
    assert np.abs(found[0] - found[1]).max() < 1e-6
    assert np.array_equal(
        found[0], np.asarray(model.predict(records()[0][:1] / np.float32(255)))[0]
    )


def test_a_warm_start_from_other_values_is_said(work: Path) -> None:
    trained(work, "images", FOLDER)
    for train, said in (("dataset: npz, path: float32.npz", True), (FOLDER, False)):
        text = NET.format(name="warm", train=train, evaluation=train)
        (work / "warm.yaml").write_text(text)
        done = succeeded(
            mxrun("train", "warm.yaml", "--overwrite", "train.start_from.run=images", cwd=work)
        )
        assert ("was trained on other values: data: images" in done.stderr) == said


def test_a_table_of_pixels_and_images_of_them_agree(work: Path) -> None:
    """A run on the columns of a table encodes an image's bytes as it does a row."""
    pixels, labels = records()
    rows = np.column_stack([pixels.reshape(80, -1), labels])
    names = [f"p{at}" for at in range(64)]
    text = "\n".join([",".join([*names, "kind"]), *(",".join(map(str, row)) for row in rows)])
    (work / "rows.csv").write_text(text + "\n")
    train = "dataset: csv, path: rows.csv, label: kind, columns: auto"
    model = trained(work, "table", train)
    expected = np.asarray(model.predict(pixels.reshape(80, -1)))
    file = np.asarray(model.predict("images/0/0.png"))[0]
    assert np.abs(file - expected[0]).max() < 1e-6
    np.savez(work / "rows.npz", data=pixels, label=labels)
    assert model.evaluate("rows.npz")["accuracy"] == (expected.argmax(1) == labels).mean()
