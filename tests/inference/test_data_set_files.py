"""Files of data sets, found by their endings, on which inference runs without their labels."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from commands import result
from layer_configs import classifier, config_text
from PIL import Image

from mxrun.base.errors import UserError
from mxrun.commands.infer import infer
from mxrun.datasets.digits import DigitsOptions, read
from mxrun.options.infer import InferOptions

RUN = Path("runs/net")
# A format that one file adds, like those of mxrun: numbers in bytes.
FORMAT = """\
import numpy as np
from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.registry import register

class Options(Parameters):
    path: str
    times: int = 1

@register("raw", Options, ("all",), suffixes=[".raw"])
def read(options: Options, split: str, inputs: Inputs) -> Dataset:
    data = np.fromfile(options.path, np.float32).reshape(-1, 1, 8, 8) * options.times
    label = np.full(len(data), 77, np.int32)
    return Dataset("raw", {"data": Field.images(data, 1.0), "label": Field(label)}, (), split)
"""


@pytest.fixture(autouse=True)
def _run(empty_folder: Path, separate_registry: None) -> None:
    Path("raw.py").write_text(FORMAT)
    Path("net.yaml").write_text("plugins: [raw.py]\n" + config_text(classifier(10)))
    result("train", "net.yaml", cwd=empty_folder)


@pytest.fixture
def digits() -> np.ndarray:
    """Twenty records of the test split in 0..1, of pixels 0..255."""
    records = read(DigitsOptions(), "test", {}).fields["data"].records[:20]
    return np.round(records / 16 * 255).astype(np.float32) / 255


def outputs(*inputs: str) -> np.ndarray:
    inference = infer(InferOptions(run=RUN, inputs=inputs))
    batches = list(inference.batches())
    assert all(batch.records.labels is None for batch in batches)
    return np.concatenate([batch.arrays["softmax_output"] for batch in batches])


def test_files_of_data_sets_give_what_an_array_gives(digits: np.ndarray) -> None:
    """With labels that training does not know, and without any."""
    np.save("x.npy", digits)
    expected = outputs("x.npy")
    np.savez("labelled.npz", data=digits, label=np.full(len(digits), 77))
    np.savez("plain.npz", data=digits)
    digits.tofile("x.raw")
    (digits / 2).tofile("half.raw")
    with open("x.svm", "w") as file:
        for row in digits.reshape(20, 64).tolist():
            file.write(" ".join(["77", *(f"{i}:{x!r}" for i, x in enumerate(row, 1))]) + "\n")
    for name in ("labelled.npz", "plain.npz", "x.raw", "x.svm"):
        assert outputs(name).tobytes() == expected.tobytes(), name
    assert outputs("half.raw", "times=2").tobytes() == expected.tobytes()


def test_images_are_read_while_the_network_runs(digits: np.ndarray) -> None:
    np.save("x.npy", digits)
    with tarfile.open("x.tar", "w") as archive:
        for number, digit in enumerate(digits):
            content = io.BytesIO()
            Image.fromarray(np.round(digit[0] * 255).astype(np.uint8)).save(content, "png")
            entry = tarfile.TarInfo(f"{number:03}.png")
            entry.size = content.tell()
            archive.addfile(entry, io.BytesIO(content.getvalue()))
    np.testing.assert_allclose(outputs("x.tar"), outputs("x.npy"), rtol=1e-5)
    rows = list(infer(InferOptions(run=RUN, inputs=("x.tar",))).rows())
    assert [(row["input"], row["record"]) for row in rows] == [("x.tar", n) for n in range(20)]


def test_a_network_of_several_inputs_reads_an_archive(empty_folder: Path) -> None:
    layers = """\
    - elemwise_add: {name: sum, lhs: left, rhs: right}
    - FullyConnected: {name: fc1, num_hidden: 2}
    - SoftmaxOutput: {name: softmax, label: label}
"""
    data = "data: {batch_size: 4, train: {dataset: npz, path: all.npz, split: all}}\n"
    inputs = "{left: [3], right: [3], label: []}"
    Path("two.yaml").write_text(config_text(layers, name="two", inputs=inputs, data=data))
    left, right = np.random.default_rng(0).random((2, 8, 3), np.float32)
    np.savez("all.npz", left=left, right=right, label=np.arange(8) % 2)
    result("train", "two.yaml", cwd=empty_folder)
    np.savez("new.npz", left=left, right=right)
    np.savez("moved.npz", left=right, right=left)
    found = [
        list(infer(InferOptions(run=Path("runs/two"), inputs=(name,))).rows())
        for name in ("new.npz", "moved.npz")
    ]
    assert [row["top"] for row in found[0]] == [row["top"] for row in found[1]]


def test_a_file_of_a_data_set_is_read_alone(digits: np.ndarray) -> None:
    np.save("x.npy", digits)
    np.savez("x.npz", data=digits)
    with pytest.raises(UserError, match=r"(?s)x\.npz is a data set \(npz\), .*got: 2 files"):
        outputs("x.npy", "x.npz")
    with pytest.raises(UserError, match=r"missing\.npz: there is no such file"):
        outputs("missing.npz")
    np.savez("other.npz", image=digits)
    with pytest.raises(UserError, match="no array is named 'data'"):
        outputs("other.npz")
