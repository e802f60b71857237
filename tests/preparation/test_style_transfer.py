"""The bundled style transfer: a picture is trained, and every weight stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from commands import result
from safetensors.numpy import load_file

pytestmark = pytest.mark.commands
Array = npt.NDArray[Any]


def convolved(picture: Array, weight: Array, bias: Array) -> Array:
    """Return the convolution of [channels, height, width] with windows of 3 x 3, padded by 1."""
    padded = np.pad(picture, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    found: Array = np.einsum("chwij,ocij->ohw", windows, weight) + bias[:, None, None]
    return found


def features(weights: Mapping[str, Array], picture: Array) -> tuple[Array, Array]:
    """Return what both frozen layers make of a picture [1, height, width]."""
    first = np.maximum(convolved(picture, weights["conv1_weight"], weights["conv1_bias"]), 0)
    halved = first.reshape(len(first), 16, 2, 16, 2).mean((2, 4))
    second = convolved(halved, weights["conv2_weight"], weights["conv2_bias"])
    return first, np.maximum(second, 0)


def unlikeness(found: tuple[Array, Array], style: tuple[Array, Array]) -> float:
    """Return the distance of the products of all pairs of channels, of both layers."""
    total = 0.0
    for one, other in zip(found, style, strict=True):
        rows = one.reshape(len(one), -1), other.reshape(len(other), -1)
        total += np.square(rows[0] @ rows[0].T - rows[1] @ rows[1].T).mean()
    return total


def test_L4_a_picture_is_trained_and_every_weight_stays(tmp_path: Path) -> None:
    """It is nearer to the content than the other picture is, and to the style than the first."""
    rows, columns = np.mgrid[0:32, 0:32]
    disc, stripes = (rows - 16) ** 2 + (columns - 16) ** 2 < 100, (rows + columns) // 3 % 2
    content, style = (each[None].astype(np.float32) for each in (disc, stripes))
    np.savez(tmp_path / "pair.npz", content=content[None], style=style[None])
    found_in = []
    for name, setting in (
        ("digits_lenet", "train.epochs=2"),
        ("style_transfer", f"data.train.path={tmp_path / 'pair.npz'}"),
    ):
        summary = result("train", name, setting, cwd=tmp_path)
        found_in.append(tmp_path / summary["run_dir"] / f"checkpoint-{summary['steps']}")
    before, after = (load_file(path / "parameters.safetensors") for path in found_in)
    picture = after.pop("picture")
    assert picture.shape == (1, 1, 32, 32)
    assert {*after} == {"conv1_bias", "conv1_weight", "conv2_bias", "conv2_weight"}
    for name, array in after.items():
        assert array.tobytes() == before[name].tobytes()
    weights = {name: array.astype(np.float64) for name, array in after.items()}
    found, of_content, of_style = (
        features(weights, each.astype(np.float64)) for each in (picture[0], content, style)
    )
    assert (
        np.square(found[1] - of_content[1]).mean() < np.square(of_style[1] - of_content[1]).mean()
    )
    assert unlikeness(found, of_style) < unlikeness(of_content, of_style) / 4
