"""Weights of torchvision, timm and Keras in bundled networks, against PyTorch."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.peer import PyTorch
from peer_scripts import run_in
from refusals import only_problem
from training import newest, run_training

import mxrun
from mxrun.base.array_file import file_parts
from mxrun.io.formats.weight_files import read_weights
from mxrun.preparation.planning import load
from mxrun.preparation.weight_tables import table_for
from mxrun.run.warm_start import WarmStartSource

SCRIPT = (Path(__file__).parents[1] / "oracles/foreign_networks.py").read_text()
# Sides of images that are smaller than the networks' own, but large enough for them.
SIDES = {"inceptionv3_imagenet": 107, "vgg16_imagenet": 64}
SCALED = [{"normalize": {"mean": 0.5, "std": 0.25}}]
NETWORKS = (
    *("torchvision resnet50_imagenet", "torchvision mobilenetv2_imagenet"),
    *("torchvision vgg16_imagenet", "torchvision densenet121_imagenet"),
    *("torchvision old densenet121_imagenet", "torchvision inceptionv3_imagenet"),
    *("timm mobilenetv1_imagenet", "timm mobilenetv2_imagenet", "timm vgg16_imagenet"),
    *("keras resnet50_imagenet", "keras vgg16_imagenet", "keras densenet121_imagenet"),
    *("keras inceptionv3_imagenet", "keras mobilenetv1_imagenet", "keras mobilenetv2_imagenet"),
)


def outputs_of_both(network: str, folder: Path, suffix: str = "npz") -> tuple[Any, Any]:
    """Return the logits of the network here and in PyTorch, with weights that PyTorch draws."""
    framework, *_, config = network.split()
    side = SIDES.get(config, 32)
    results, weights = str(folder / "results.npz"), str(folder / "weights.npz")
    request = {"network": network, "seed": 0, "side": side, "file": results, "weights": weights}
    run_in(PyTorch, SCRIPT, [request])
    file = f"weights.{suffix}"
    if suffix == "safetensors":
        Path(file).write_bytes(b"".join(file_parts(dict(np.load(weights)))))
    table = table_for(framework, config)
    assert table is not None
    edits = "\n".join(form.edits for form in table.forms)
    Path("net.yaml").write_text(f"extends: {config}\n{edits}\n")
    overrides: dict[str, Any] = {
        "train.start_from": {"weights": file, "names": framework},
        "network.inputs.data": [3, side, side],
        "data.batch_size": 2,
        "data.train.transforms": SCALED,
        "data.eval.transforms": SCALED,
    }
    found = np.load(results)
    here = mxrun.load("net.yaml", overrides).predict(found["pixels"], outputs=["fc"])
    return here.outputs["fc"], found["logits"]


def assert_same(outputs: tuple[Any, Any]) -> None:
    here, there = outputs
    assert np.abs(here - there).max() <= 1e-5 * np.abs(there).max()


def test_outputs_of_a_small_network_are_those_of_pytorch(empty_folder: Path) -> None:
    assert_same(outputs_of_both("torchvision resnet20_cifar10", empty_folder, "safetensors"))


@pytest.mark.full
@pytest.mark.parametrize("network", NETWORKS)
def test_outputs_are_those_of_pytorch(network: str, empty_folder: Path) -> None:
    assert_same(outputs_of_both(network, empty_folder))


NET = """\
name: net
network:
  inputs: {data: [2, 4, 4], label: []}
  layers:
    - Convolution: {name: unit1/conv, num_filter: 4, kernel: [3, 3], no_bias: true}
    - BatchNorm: {name: unit1/norm, fix_gamma: false, eps: 1e-5}
    - FullyConnected: {name: fc, num_hidden: 3}
    - SoftmaxOutput: {label: label}
data: {batch_size: 2, train: {dataset: synthetic, records: 4, classes: 3}}
train: {epochs: 1, optimizer: {sgd: {lr: 0.1}}}
"""
# Names there are those of PyTorch, with numbers from 0.
THERE = {
    "units.0.conv.weight": np.arange(72.0).reshape(4, 2, 3, 3),
    "units.0.conv.bias": np.arange(4.0),
    "units.0.norm.running_mean": np.full(4, 5.0),
    "units.0.norm.running_var": np.full(4, 2.0),
    "units.0.norm.num_batches_tracked": np.array(3),
    "head.weight": np.ones((3, 16)),
    "head.bias": np.arange(3.0),
}
PATTERNS = "{'units.{i}.*': 'unit{i + 1}/*', head: fc}"


def read(section: str) -> WarmStartSource:
    Path("net.yaml").write_text(NET)
    return WarmStartSource.read(load("net.yaml", (f"train.start_from={section}",)), Path("runs"))


@pytest.fixture
def _archive(empty_folder: Path) -> None:
    """The archive there.npz, in an empty folder."""
    np.savez("there.npz", **THERE)


@pytest.mark.usefixtures("_archive")
def test_patterns_name_layers_and_what_they_lack_is_folded() -> None:
    found = read(f"{{weights: there.npz, names: {PATTERNS}}}")
    assert np.array_equal(found.arrays["unit1/conv_weight"], THERE["units.0.conv.weight"])
    # The convolution here has no bias: the mean that is subtracted afterwards has it.
    assert np.array_equal(found.arrays["unit1/norm_moving_mean"], 5 - np.arange(4.0))
    assert np.array_equal(found.arrays["unit1/norm_gamma"], np.ones(4))
    assert np.array_equal(found.arrays["unit1/norm_beta"], np.zeros(4))
    assert found.missing == found.misshapen == ()
    assert found.unexpected == ("units.0.norm.num_batches_tracked",)


@pytest.mark.usefixtures("_archive")
def test_a_run_begins_with_the_weights_and_says_what_was_loaded() -> None:
    Path("net.yaml").write_text(NET)
    section = f"{{weights: there.npz, skip: [fc_*], names: {PATTERNS}}}"
    summary = run_training(f"train.start_from={section}", "train.optimizer.sgd.lr=0")
    assert summary["variables"]["loaded"]["tensors"] == 5
    assert summary["variables"]["initialised"]["names"] == ["fc_weight", "fc_bias"]
    assert summary["started_from"]["run"] == "there.npz"
    saved = newest("net").parameters["unit1/conv_weight"]
    assert np.array_equal(saved, THERE["units.0.conv.weight"])


@pytest.mark.usefixtures("_archive")
@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("{weights: no.npz}", "no.npz: cannot be read"),
        ("{weights: net.yaml}", "holds no weights that are read"),
        ("{weights: there.npz}", "there.npz lacks parameters to load"),
        ("{weights: there.npz, names: torchvision}", "no table of torchvision's names"),
        ("{weights: there.npz, names: caffe}", "train.start_from.names cannot be"),
        ("{weights: there.npz, names: {'*.weight': fc_weight}}", "are both fc_weight"),
        ("{weights: there.npz, names: {'a{1}': b}}", "no name of a number"),
        ("{weights: there.npz, names: {'a': '*'}}", "more * than"),
        ("{weights: there.npz, names: {'a{i}': 'b{j}'}}", "names: "),
        ("{weights: there.npz, run: runs/a}", "train.start_from.run cannot be"),
        ("{weights: there.npz, checkpoint: best}", "train.start_from.checkpoint cannot be"),
        ("{run: runs/a, names: keras}", "train.start_from.names cannot be"),
        ("{load: [a]}", "train.start_from.run is missing"),
    ],
)
def test_what_cannot_be_used_has_its_place(section: str, problem: str) -> None:
    found = only_problem(read, section)
    assert problem in found.problem
    assert found.place is not None


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("head.weight", np.nan, "fc_weight: 1 of 48 values are damaged"),
        ("head.weight", 1e300, "fc_weight: 1 of 48 values are damaged"),
        ("units.0.norm.running_var", -0.5, "unit1/norm_moving_var: 1 of 4 values are damaged"),
    ],
)
def test_numbers_that_no_training_has_are_refused(
    name: str, value: float, problem: str, empty_folder: Path
) -> None:
    damaged = {**THERE, name: np.array(THERE[name], "float64")}
    damaged[name].flat[0] = value
    np.savez("there.npz", **damaged)
    found = only_problem(read, f"{{weights: there.npz, names: {PATTERNS}}}")
    assert problem in found.problem
    assert "skip" in found.hint
    # What is not loaded may hold anything.
    layer = problem.split(":", maxsplit=1)[0]
    skipped = read(f"{{weights: there.npz, names: {PATTERNS}, skip: ['{layer}']}}")
    assert layer not in skipped.arrays


def test_every_array_of_an_archive_of_weights_is_read(empty_folder: Path) -> None:
    np.savez("there.npz", **THERE, phase=np.zeros(3, "complex64"))
    found = only_problem(read, f"{{weights: there.npz, names: {PATTERNS}}}")
    assert "there.npz: phase.npy" in found.problem
    assert found.got == "'<c8'"


def test_pickles_are_refused_with_what_turns_them_into_safetensors(empty_folder: Path) -> None:
    Path("net.pth").write_bytes(b"never read")
    found = only_problem(read, "{weights: net.pth, names: torchvision}")
    assert "weights_only=True" in found.hint
    assert "safetensors.torch.save_file" in found.hint
    assert "'net.safetensors'" in found.hint


def keras_file(name: str, arrays: Mapping[str, Any], **options: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(name, "w") as file:
        for path, array in arrays.items():
            file.create_dataset(path, data=array, **options)


IN_KERAS = {
    "conv/kernel": np.arange(72.0, dtype="f4").reshape(3, 3, 2, 4),
    "norm/gamma": np.full(4, 3, "f4"),
    "norm/beta": np.full(4, 4, "f4"),
    "norm/moving_mean": np.full(4, 5, "f4"),
    "norm/moving_variance": np.full(4, 6, "f4"),
    "head/kernel": np.arange(48.0, dtype="f4").reshape(16, 3),
    "head/bias": np.arange(3.0, dtype="f4"),
}
KERAS_NAMES = "{conv: unit1/conv, norm: unit1/norm, head: fc}"


def assert_keras_is_loaded(file: str) -> None:
    found = read(f"{{weights: {file}, names: {KERAS_NAMES}}}")
    kernel = IN_KERAS["conv/kernel"].transpose(3, 2, 0, 1)
    assert np.array_equal(found.arrays["unit1/conv_weight"], kernel)
    assert np.array_equal(found.arrays["fc_weight"], IN_KERAS["head/kernel"].T)
    assert np.array_equal(found.arrays["unit1/norm_moving_var"], np.full(4, 6))
    assert found.unexpected == ()


@pytest.mark.parametrize("above", ["", "model_weights/"])
def test_files_of_keras_2_are_read(above: str, empty_folder: Path) -> None:
    layers = {
        f"{above}{name.partition('/')[0]}/{name}:0": array for name, array in IN_KERAS.items()
    }
    keras_file("net.h5", {**layers, "optimizer_weights/a": np.ones(3)})
    assert_keras_is_loaded("net.h5")


def test_names_of_layers_in_files_of_keras_2(empty_folder: Path) -> None:
    """Names with a slash, layers of a model within a model, and leaves of old versions."""
    names = {
        "conv1/conv/conv1/conv/kernel:0": "conv1/conv/kernel",
        "inner/head/bias:0": "head/bias",
        "block1_conv1/block1_conv1_W_1:0": "block1_conv1/kernel",
    }
    keras_file("net.h5", dict.fromkeys(names, np.ones(2)))
    assert sorted(read_weights(Path("net.h5"))) == sorted(names.values())


def test_archives_of_keras_3_are_read_by_the_names_in_their_config(empty_folder: Path) -> None:
    kinds = {"conv": "conv2d", "norm": "batch_normalization", "head": "dense"}
    paths = {}
    for name, array in IN_KERAS.items():
        group = f"layers/{kinds[name.partition('/')[0]]}/vars"
        paths[f"{group}/{sum(path.startswith(group) for path in paths)}"] = array
    keras_file("model.weights.h5", paths)
    classes = {"conv": "Conv2D", "norm": "BatchNormalization", "head": "Dense"}
    layers = [{"class_name": kind, "config": {"name": name}} for name, kind in classes.items()]
    with zipfile.ZipFile("net.keras", "w") as archive:
        archive.writestr("config.json", json.dumps({"config": {"layers": layers}}))
        archive.write("model.weights.h5")
    assert_keras_is_loaded("net.keras")


def test_sizes_that_a_file_states_are_not_believed(empty_folder: Path) -> None:
    """Neither a length without values nor values of another file."""
    h5py = pytest.importorskip("h5py")
    with h5py.File("huge.h5", "w") as file:
        file.create_dataset("a/kernel", (1 << 20, 1 << 16), "f4", chunks=(1, 1 << 16))
    with h5py.File("few.h5", "w") as file:
        file.create_dataset("a/kernel", (1 << 10, 4), "f4", chunks=(1, 4))
    Path("other").write_bytes(bytes(64))
    with h5py.File("other.h5", "w") as file:
        file.create_dataset("a/kernel", (4, 4), "f4", external=[("other", 0, 64)])
    Path("not.h5").write_bytes(b"no")
    Path("not.safetensors").write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    for file, problem in {
        "huge.h5": "does not fit into memory",
        "few.h5": "values are missing",
        "other.h5": "in another file",
        "not.h5": "not a readable HDF5 file",
        "not.safetensors": "not a safetensors file",
    }.items():
        assert problem in only_problem(read, f"{{weights: {file}}}").problem
