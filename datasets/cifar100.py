"""CIFAR-100: 60,000 colour images of 32x32 in 100 classes, read from the binary files.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field as Option

from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.pixels import IMAGES
from mxrun.io.dataset.registry import register
from mxrun.io.files import find_file, user_path
from mxrun.io.formats.cifar import read_cifar, read_names

# Number of classes of the two labels with which a record begins, in this order.
_CLASSES = {"coarse": 20, "fine": 100}


class Cifar100Options(Parameters):
    """Folder of the files and choice between the two labels."""

    path: str = Option(
        min_length=1,
        description="Folder with train.bin, test.bin and the names of the classes. A "
        "relative path starts at the config's folder.",
        examples=["cifar-100-binary"],
    )
    labels: Literal["fine", "coarse"] = Option(
        default="fine",
        description="The labels: 100 fine or 20 coarse classes.",
        examples=["coarse"],
    )


@register(
    "cifar100",
    Cifar100Options,
    ("train", "test"),
    images=IMAGES,
    files={"train": "train.bin", "test": "test.bin"},
)
def read(options: Cifar100Options, split: str, inputs: Inputs) -> Dataset:
    """Colour images of 32x32; data float32 [3, 32, 32] in 0..1, label int32 of 100 or 20 classes.

    Names are read from fine_label_names.txt or coarse_label_names.txt.
    """
    folder = user_path(options.path)
    files = [find_file(folder, f"{split}.bin")]
    images, both = read_cifar(files, 2, tuple(_CLASSES.values()))
    labels = both[:, tuple(_CLASSES).index(options.labels)].astype(np.int32)
    names = read_names(folder, f"{options.labels}_label_names.txt", _CLASSES[options.labels])
    return Dataset("cifar100", {"data": Field.images(images), "label": Field(labels)}, names, split)
