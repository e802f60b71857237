"""Fashion-MNIST: 70,000 grey pictures of clothes, in four IDX files named like MNIST's.

Source: H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking
Machine Learning Algorithms", arXiv:1708.07747; the names of the classes are those of its README.
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

_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


class FashionMnistOptions(Parameters):
    """Folder of the files."""

    path: str = Option(
        min_length=1,
        description="Folder with train-images-idx3-ubyte and train-labels-idx1-ubyte, and for the "
        "split test the files t10k-... like these; plain or .gz. A relative path starts at the "
        "config's folder.",
        examples=["fashion_mnist"],
    )


@register("fashion_mnist", FashionMnistOptions, MNIST_SPLITS, images=IMAGES, same_files="mnist")
def read(options: FashionMnistOptions, split: str, inputs: Inputs) -> Dataset:
    """Pictures of clothes of 28x28 from IDX files; data float32 [1, 28, 28] in 0..1, label int32.

    The classes have the names that the data set's authors give them.
    """
    fields = read_mnist(user_path(options.path), split, "class")
    return Dataset("fashion_mnist", fields, _CLASSES, split)
