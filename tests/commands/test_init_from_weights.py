"""`init --from`: a config that fine-tunes a trained network on new images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from refusals import only_problem
from training import newest, run_training

from mxrun.commands.init import init
from mxrun.options.init import InitOptions


def torchvision_weights(file: str) -> dict[str, Any]:
    """Write random weights of a ResNet-20 under torchvision's names."""
    draws = np.random.default_rng(0)
    found: dict[str, Any] = {}

    def unit(conv: str, norm: str, out: int, inner: int, kernel: int = 3) -> None:
        weight = draws.standard_normal((out, inner, kernel, kernel), np.float32)
        found[f"{conv}.weight"] = weight / (inner * kernel**2) ** 0.5
        for end, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
            found[f"{norm}.{end}"] = np.full(out, value, np.float32)

    unit("conv1", "bn1", 16, 3)
    for stage, filters in enumerate((16, 32, 64), 1):
        for number in range(3):
            name, halves = f"layer{stage}.{number}", stage > 1 and number == 0
            unit(f"{name}.conv1", f"{name}.bn1", filters, filters // 2 if halves else filters)
            unit(f"{name}.conv2", f"{name}.bn2", filters, filters)
            if halves:
                unit(f"{name}.downsample.0", f"{name}.downsample.1", filters, filters // 2, 1)
    found["fc.weight"] = draws.standard_normal((10, 64), np.float32)
    found["fc.bias"] = np.zeros(10, np.float32)
    np.savez(file, **found)
    return found


@pytest.fixture
def _photos(empty_folder: Path) -> None:
    """Images of three colours in folders of classes."""
    for kind, color in {"blue": (0, 0, 255), "green": (0, 255, 0), "red": (255, 0, 0)}.items():
        Path("photos", kind).mkdir(parents=True)
        for number in range(5):
            Image.new("RGB", (32, 32), color).save(f"photos/{kind}/{number}.png")


def written(**options: Any) -> tuple[str, str]:
    """Return the text of the config that `init` writes, and its choices."""
    result = init(InitOptions(source="photos", overwrite=True, **options))
    return result.file.read_text(), "\n".join(result.choices)


@pytest.mark.usefixtures("_photos")
def test_a_config_trains_all_layers_and_a_new_head() -> None:
    there = torchvision_weights("there.npz")
    text, choices = written(start="resnet20_cifar10", weights=Path("there.npz"))
    assert "names of torchvision for resnet20_cifar10" in choices
    assert "[0.4914, 0.4822, 0.4465]" in choices
    assert "    change: {fc: {num_hidden: 3}}" in text
    summary = run_training("train.epochs=1", config="photos.yaml")
    assert "frozen" not in summary["variables"]
    assert summary["variables"]["loaded"]["tensors"] == len(there) - 2
    saved = newest("photos").parameters
    change = np.abs(saved["stem/conv_weight"] - there["conv1.weight"]).max()
    assert 0 < change < 0.01
    assert saved["fc_weight"].shape == (3, 64)
    # The run is a start as well, without a file.
    text, _ = written(start="photos", name="again")
    assert "extends: runs/photos/config.yaml" in text
    assert "run: runs/photos" in text
    summary = run_training("train.epochs=1", config="again.yaml")
    assert summary["started_from"]["run"].startswith("runs/photos")


@pytest.mark.usefixtures("_photos")
def test_images_of_other_sizes_are_brought_to_that_of_the_network() -> None:
    torchvision_weights("there.npz")
    assert "resize" not in written(start="resnet20_cifar10", weights=Path("there.npz"))[0]
    Image.new("RGB", (60, 40), (0, 0, 200)).save("photos/blue/large.png")
    text, _ = written(start="resnet20_cifar10", weights=Path("there.npz"))
    assert text.count("resize: {size: 32}") == text.count("center_crop: {size: [32, 32]}") == 1
    assert run_training("train.epochs=1", config="photos.yaml")["steps"] > 0


@pytest.mark.usefixtures("_photos")
def test_images_are_those_of_the_command_whatever_the_run_was_evaluated_on() -> None:
    torchvision_weights("there.npz")
    written(start="resnet20_cifar10", weights=Path("there.npz"))
    frozen = ('network.variables={"*": {frozen: true}, "fc_*": {}}',)
    run_training("train.epochs=1", "data.eval.path=photos", *frozen, config="photos.yaml")
    Path("others").mkdir()
    for kind in ("blue", "red"):
        Path("photos", kind).rename(f"others/{kind}")
    result = init(InitOptions(source="others", start="photos"))
    summary = run_training("train.epochs=1", config=result.file)
    assert summary["classes"] == ["blue", "red"]
    assert "frozen" not in summary["variables"]


@pytest.mark.usefixtures("_photos")
def test_what_does_not_go_together_is_said() -> None:
    torchvision_weights("there.npz")
    weights = Path("there.npz")
    for options, problem in (
        ({"weights": weights}, "--weights needs --from"),
        ({"start": "resnet20_cifar10"}, "needs --weights FILE"),
        ({"start": "resnet21"}, "there is no config 'resnet21'"),
        ({"start": "densenet121_imagenet", "weights": weights}, "no table of torchvision, timm"),
        ({"start": "resnet20_cifar10", "weights": Path("no.npz")}, "no.npz: cannot be read"),
    ):
        found = only_problem(lambda given: written(**given), options)
        assert problem in found.problem
