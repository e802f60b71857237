"""CIFAR-10: 60,000 colour images of 32x32 in 10 classes, read from the binary files.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field as Option

from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.pixels import IMAGES
from mxrun.io.dataset.registry import register
from mxrun.io.files import find_file, user_path
from mxrun.io.formats.cifar import read_cifar

_FILES = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}
_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


class Cifar10Options(Parameters):
    """Folder of the files."""

    path: str = Option(
        min_length=1,
        description="Folder with data_batch_1.bin to data_batch_5.bin and test_batch.bin. A "
        "relative path starts at the config's folder.",
        examples=["cifar-10-batches-bin"],
    )


@register(
    "cifar10",
    Cifar10Options,
    ("train", "test"),
    images=IMAGES,
    files={"train": "data_batch_1.bin", "test": "test_batch.bin"},
)
def read(options: Cifar10Options, split: str, inputs: Inputs) -> Dataset:
    """Colour images of 32x32; data float32 [3, 32, 32] in 0..1, label int32 of 10 classes."""
    folder = user_path(options.path)
    images, labels = read_cifar([find_file(folder, name) for name in _FILES[split]], 1, (10,))
    fields = {"data": Field.images(images), "label": Field(labels[:, 0].astype(np.int32))}
    return Dataset("cifar10", fields, _CLASSES, split)
