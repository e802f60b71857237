"""MNIST and its drop-in replacements: four IDX files in a folder that the user names.

Source of the format and the file names: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of
handwritten digits".
"""

from __future__ import annotations

from pydantic import Field as Option

from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.pixels import IMAGES
from mxrun.io.dataset.registry import register
from mxrun.io.files import user_path
from mxrun.io.formats.mnist import MNIST_SPLITS, read_mnist


class MnistOptions(Parameters):
    """Folder of the files."""

    path: str = Option(
        min_length=1,
        description="Folder with train-images-idx3-ubyte and train-labels-idx1-ubyte, and for the "
        "split test the files t10k-... like these; plain or .gz. A relative path starts at the "
        "config's folder.",
        examples=["mnist"],
    )


@register(
    "mnist",
    MnistOptions,
    MNIST_SPLITS,
    images=IMAGES,
    files={"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"},
)
def read(options: MnistOptions, split: str, inputs: Inputs) -> Dataset:
    """Handwritten digits of 28x28 from IDX files; data float32 [1, 28, 28] in 0..1, label int32."""
    fields = read_mnist(user_path(options.path), split, "digit")
    return Dataset("mnist", fields, tuple("0123456789"), split)
