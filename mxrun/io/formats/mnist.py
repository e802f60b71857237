"""Reader of MNIST's four IDX files, which other data sets use too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mxrun.base.errors import Diagnostic, UserError
from mxrun.io.dataset.fields import Field
from mxrun.io.files import find_file
from mxrun.io.formats.idx import read_idx

MNIST_SPLITS = ("train", "test")
_PREFIXES = {"train": "train", "test": "t10k"}


def read_mnist(folder: Path, split: str, label: str) -> dict[str, Field]:
    """Return the fields of a split: data in 0..1, [1, 28, 28], and label, int32, from 0 to 9.

    label: what a label is, for messages. Raises UserError for missing and damaged files.
    """
    prefix = _PREFIXES[split]
    image_name, label_name = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
    image_file = find_file(folder, image_name, f"{image_name}.gz")
    label_file = find_file(folder, label_name, f"{label_name}.gz")
    images: NDArray[np.uint8] = read_idx(image_file, (None, 28, 28))
    labels = read_idx(label_file, (None,))
    if len(images) != len(labels):
        problem = f"{label_file}: byte 4: not as many labels as images in {image_file}"
        raise UserError(Diagnostic(problem, None, str(len(images)), str(len(labels))))
    if labels.max() > 9:
        first = int(np.argmax(labels > 9))
        problem = f"{label_file}: byte {8 + first}: the label of record {first} is not a {label}"
        raise UserError(Diagnostic(problem, None, "0 to 9", str(labels[first])))
    return {
        "data": Field.images(images[:, np.newaxis]),
        "label": Field(labels.astype(np.int32)),
    }
