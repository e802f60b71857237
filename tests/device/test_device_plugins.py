"""Plugins with a device that is wrong: one error each, at the plugin's line."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import refused

pytestmark = pytest.mark.commands

DEVICE = """\
import numpy as np

from mxrun.base.device import DeviceDescription, NumpyBodies
from mxrun.base.errors import InternalError
from mxrun.device.interface import Device
from mxrun.device.reference.device import ReferenceDevice
from mxrun.device.registry import register_device


@register_device("mine")
class Mine(ReferenceDevice):
    @classmethod
    def describe(cls, index, threads):
        return DeviceDescription("mine", index, NumpyBodies.ROUNDED)
"""
AT_CLASS = DEVICE.splitlines().index('@register_device("mine")') + 1
LACKING = DEVICE.replace("(ReferenceDevice)", "(Device)")


def refused_plugin(folder: Path, text: str, *command: str) -> str:
    plugin = folder / "mine.py"
    plugin.write_text(text)
    return refused(*command, f"plugins=[{plugin}]", cwd=folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DEVICE.replace('"mine"', '"cpu"'), "device 'cpu' is registered twice"),
        (DEVICE.replace('"mine"', '"my:device"'), "device 'my:device': a name has letters"),
        (LACKING, "Mine lacks allocate, bind, read, write"),
        (DEVICE.replace("(ReferenceDevice)", ""), "Mine is not a Device"),
    ],
)
def test_a_device_that_cannot_be_registered_is_one_error(
    text: str, words: str, tmp_path: Path
) -> None:
    said = refused_plugin(tmp_path, text, "check", "digits_lenet", "context=mine")
    assert said.startswith(f"{tmp_path}/mine.py:{AT_CLASS}:")
    assert words in said


@pytest.mark.parametrize("name", ["count", "describe", "allocate", "bind"])
def test_what_a_device_raises_is_one_error_at_its_line(name: str, tmp_path: Path) -> None:
    decorator = "    @classmethod\n" if name in ("count", "describe") else ""
    text = f"{DEVICE}\n{decorator}    def {name}(first, *arguments):\n        1 / 0\n"
    said = refused_plugin(tmp_path, text, "train", "digits_lenet", "context=mine")
    assert said.startswith(f"{tmp_path}/mine.py:{len(text.splitlines())}:")
    assert f"{name} raised ZeroDivisionError" in said
    assert "check-op" not in said


def test_a_device_with_kernels_of_its_own_needs_some(tmp_path: Path) -> None:
    text = DEVICE.replace(", NumpyBodies.ROUNDED", "")
    said = refused_plugin(tmp_path, text, "train", "digits_lenet", "context=mine")
    assert "Convolution 'conv1' has no kernel for 'mine'" in said
    assert "devices=('mine',)" in said


def test_an_unknown_kind_may_come_from_a_plugin(tmp_path: Path) -> None:
    assert "`plugins` names the file" in refused("check", "digits_lenet", "context=q", cwd=tmp_path)
