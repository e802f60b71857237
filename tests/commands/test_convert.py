"""`convert`: configs and runs as ONNX files, with equal results in other runtimes."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from commands import mxrun, refused, result, succeeded
from layer_configs import DENSE, SOFTMAX, written
from onnx_environment import checked, outputs_of, started

from mxrun.api.model import load as load_model
from mxrun.base.errors import UserError
from mxrun.commands.convert import convert
from mxrun.commands.infer import infer
from mxrun.config.bundled import find_config
from mxrun.options.convert import ConvertOptions
from mxrun.options.infer import InferOptions
from mxrun.preparation.planning import load

CONFIGS = ("lenet_mnist", "mlp_mnist", "resnet20_cifar10", "autoencoder_digits", "mlp_regression")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of a network that has convolutions, batch norm and Dropout."""
    folder = tmp_path_factory.mktemp("work")
    result("train", "digits_regularized", "train.epochs=2", cwd=folder)
    return folder


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_a_runtime_gives_what_the_run_gives(
    name: str, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tested with batches of another size than the run's."""
    monkeypatch.chdir(work)
    file = tmp_path / "net.onnx"
    report = result("convert", "runs/digits_regularized", "-o", str(file), cwd=work)
    images = np.random.default_rng(3).random((29, 1, 8, 8), np.float32)
    np.save(tmp_path / "images.npy", images)
    run, inputs = Path("runs/digits_regularized"), (str(tmp_path / "images.npy"),)
    batches = list(infer(InferOptions(run=run, inputs=inputs)).batches())
    ours = np.concatenate([batch.arrays["softmax_output"] for batch in batches])
    baseline = started(name)
    try:
        (theirs,) = outputs_of(baseline, file.read_bytes(), {"data": images})
    finally:
        baseline.close()
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)
    assert checked([file]) == ["17 mxrun"]
    assert report["bytes"] == file.stat().st_size
    assert report["inputs"] == {"data": {"dtype": "float32", "shape": ["batch", 1, 8, 8]}}
    assert report["outputs"] == {"softmax_output": {"dtype": "float32", "shape": ["batch", 10]}}


def test_a_loss_without_outputs_gives_its_predictions(empty_folder: Path) -> None:
    result("train", "gpt_tiny", "train.max_steps=2", "data.eval=null", cwd=empty_folder)
    file = empty_folder / "net.onnx"
    report = result("convert", "runs/gpt_tiny", "-o", str(file), cwd=empty_folder)
    shape = ["batch", 64, 62]
    assert report["outputs"] == {"loss_softmax_output": {"dtype": "float32", "shape": shape}}
    ids = np.random.default_rng(3).integers(0, 62, (5, 64), np.int32)
    ours = load_model("runs/gpt_tiny").predict({"data": ids})
    baseline = started("onnxruntime")
    try:
        (theirs,) = outputs_of(baseline, file.read_bytes(), {"data": ids})
    finally:
        baseline.close()
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("config", CONFIGS)
def test_bundled_configs_are_converted(config: str, tmp_path: Path) -> None:
    """Converted for any batch size and for one; no data is read."""
    sizes = []
    for file, batch in (("any.onnx", ()), ("three.onnx", ("--batch", "3"))):
        options = ("--output", file, *batch)
        report = result("convert", config, *options, cwd=tmp_path)
        assert report["form"] == "onnx"
        assert report["parameters"] == _parameters(config)
        sizes.append({tensor["shape"][0] for tensor in report["inputs"].values()})
    assert sizes == [{"batch"}, {3}]
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["any.onnx", "three.onnx"]
    assert checked(files) == ["17 mxrun"] * 2


def _parameters(config: str) -> int:
    model = load(find_config(config)).model
    return sum(spec.elements for spec in model.learned.values())


def test_people_get_a_table_and_a_word_about_the_parameters(tmp_path: Path) -> None:
    done = succeeded(mxrun("convert", "lenet_mnist", "-o", "net.onnx", cwd=tmp_path))
    assert "the parameters are initial ones" in done.stderr
    for part in ("net.onnx", "batchx1x28x28", "softmax_output", "431 k parameters"):
        assert part in done.stdout


def test_overrides_change_a_config_and_not_a_run(work: Path, tmp_path: Path) -> None:
    change = "seed=5"
    result("convert", "lenet_mnist", "-o", str(tmp_path / "a.onnx"), cwd=work)
    result("convert", "lenet_mnist", change, "-o", str(tmp_path / "b.onnx"), cwd=work)
    assert (tmp_path / "a.onnx").read_bytes() != (tmp_path / "b.onnx").read_bytes()
    run = "runs/digits_regularized"
    text = refused("convert", run, change, "-o", str(tmp_path / "c.onnx"), cwd=work)
    assert "KEY=VALUE goes with configs" in text
    text = refused(
        "convert", "lenet_mnist", "--checkpoint", "best", "-o", str(tmp_path / "c.onnx"), cwd=work
    )
    assert "--checkpoint goes with a run's folder" in text
    assert not (tmp_path / "c.onnx").exists()


def test_operators_without_a_form_are_all_named_with_their_place(tmp_path: Path) -> None:
    pooling = "Pooling: {name: total, pool_type: sum, kernel: [2, 2]}"
    layers = ("cbrt: {name: root}", pooling, DENSE, SOFTMAX)
    written(tmp_path, layers, inputs="{data: [2, 6, 6], label: []}")
    text = refused("convert", "net.yaml", "-o", "net.onnx", cwd=tmp_path)
    assert "net.yaml:5:" in text
    assert "cbrt 'root' cannot be converted to ONNX" in text
    assert "net.yaml:6:" in text
    assert "pool_type sum" in text
    assert not (tmp_path / "net.onnx").exists()


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    text = refused("convert", "mlp_mnist", "-o", "missing/net.onnx", cwd=tmp_path)
    assert "cannot write missing/net.onnx: there is no folder" in text
    assert "Usage" in refused("convert", "mlp_mnist", cwd=tmp_path)


def test_a_full_disk_leaves_the_file_before(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(b"the network of last week")
    options = ConvertOptions(source=str(find_config("mlp_mnist")), output=file)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, old[1]))
    try:
        with pytest.raises(UserError, match=r"cannot write .*net\.onnx: file too large"):
            convert(options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert file.read_bytes() == b"the network of last week"
    assert list(tmp_path.iterdir()) == [file]


def test_the_same_network_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        done = mxrun("convert", "mlp_mnist", "-o", name, "--json", cwd=tmp_path)
        assert json.loads(done.stdout)["opset"] == 17
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
