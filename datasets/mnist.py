"""MNIST and its drop-in replacements: four IDX files in a folder that the user names.

Source of the format and the file names: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of
handwritten digits".
"""

from __future__ import annotations

import numpy as np
from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.files import find_file, user_path
from mxrun.io.formats.idx import read_idx

_PREFIXES = {"train": "train", "test": "t10k"}


class MnistOptions(Parameters):
    """Folder of the files."""

    path: str = Option(
        min_length=1,
        description="Folder with train-images-idx3-ubyte and train-labels-idx1-ubyte, and for the "
        "split test the files t10k-... like these; plain or .gz. A relative path starts at the "
        "config's folder.",
        examples=["mnist"],
    )


@register("mnist", MnistOptions, ("train", "test"))
def read(options: MnistOptions, split: str, inputs: Inputs) -> Dataset:
    """Handwritten digits of 28x28 from IDX files; data float32 [1, 28, 28] in 0..1, label int32."""
    folder = user_path(options.path)
    prefix = _PREFIXES[split]
    image_name, label_name = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
    image_file = find_file(folder, image_name, f"{image_name}.gz")
    label_file = find_file(folder, label_name, f"{label_name}.gz")
    images = read_idx(image_file, (None, 28, 28))
    labels = read_idx(label_file, (None,))
    if len(images) != len(labels):
        problem = f"{label_file}: byte 4: not as many labels as images in {image_file}"
        raise UserError(Diagnostic(problem, None, str(len(images)), str(len(labels))))
    if labels.max() > 9:
        first = int(np.argmax(labels > 9))
        problem = f"{label_file}: byte {8 + first}: the label of record {first} is not a digit"
        raise UserError(Diagnostic(problem, None, "0 to 9", str(labels[first])))
    fields = {
        "data": Field(images[:, np.newaxis], scale=1 / 255),
        "label": Field(labels.astype(np.int32)),
    }
    return Dataset("mnist", fields, tuple("0123456789"), split)
