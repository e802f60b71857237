"""Modules that commands load: the time before the first step is mostly that of imports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SCRIPT = """
import atexit, json, sys
import mxrun.__main__
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
sys.exit(mxrun.__main__.main())
"""
RUN = "runs/digits_lenet"
# Modules of mxrun that a command may load. More are better imported when they are needed.
MOST = {"train": 580, "infer": 540}
# Kernels of digits_lenet's operators are none of these.
OTHERS = ("attention", "batch_norm", "ctc_loss", "dot", "indexing", "layer_norm", "rnn", "sequence")


def loaded(folder: Path, *arguments: str) -> list[str]:
    """Return the modules that a command has loaded at its end."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return list(json.loads(done.stderr.splitlines()[-1]))


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the modules by command; those of training when its loops are in the cache."""
    folder = tmp_path_factory.mktemp("loaded")
    train = ("train", "digits_lenet", "train.max_steps=1", "--overwrite")
    loaded(folder, *train)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "one.png")
    infer = ("infer", RUN, "one.png")
    loaded(folder, *infer)
    return {"train": loaded(folder, *train), "infer": loaded(folder, *infer)}


def below(modules: Sequence[str], *packages: str) -> list[str]:
    return [name for name in modules if name.startswith(packages)]


@pytest.mark.parametrize("command", MOST)
def test_a_command_loads_few_modules(command: str, modules: dict[str, list[str]]) -> None:
    assert 100 < len(below(modules[command], "mxrun.")) <= MOST[command]


@pytest.mark.parametrize("command", MOST)
def test_a_command_loads_the_operators_of_its_network(
    command: str, modules: dict[str, list[str]]
) -> None:
    others = [f"mxrun.ops.{name}" for name in OTHERS]
    assert below(modules[command], *others, "mxrun.device.cuda") == []
    assert below(modules[command], "mxrun.ops.convolution.onednn", "mxrun.ops.pooling.operator")


@pytest.mark.parametrize("command", MOST)
def test_the_compiler_is_not_loaded_where_all_loops_are_cached(
    command: str, modules: dict[str, list[str]]
) -> None:
    assert below(modules[command], "mxrun.codegen.sequential") == []


@pytest.mark.parametrize("command", MOST)
def test_a_command_loads_the_optimizer_of_its_config(
    command: str, modules: dict[str, list[str]]
) -> None:
    assert below(modules[command], "mxrun.ops.optimizers.") == ["mxrun.ops.optimizers.sgd"]


def test_images_need_nothing_of_texts(modules: dict[str, list[str]]) -> None:
    texts = ("mxrun.io.text.labelled", "mxrun.io.text.dataset", "mxrun.inference.text_records")
    assert below(modules["infer"], *texts) == []
