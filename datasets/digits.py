"""UCI optical digits: 1,797 grey images of 8x8, bundled with mxrun.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, licensed CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/). `digits.csv.gz` is the repository's test part
(`optdigits.tes`) in the unchanged file of scikit-learn's wheel: a line per image, 64 pixels of
0..16 row by row (black pixels counted in 4x4 blocks of a 32x32 bitmap), then the digit.
"""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files

import numpy as np

from mxrun.base.errors import InternalError
from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.registry import register

_FILE = "digits.csv.gz"
_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"


class DigitsOptions(Parameters):
    """Options of the bundled digits: none."""


# The pixel value of white.
WHITE = 16


@register(
    "digits",
    DigitsOptions,
    ("train", "test", "all"),
    images={"data": WHITE},
    parts=["train", "test"],
    licence="CC BY 4.0 (E. Alpaydin, C. Kaynak, UCI Machine Learning Repository, 1998, "
    "https://doi.org/10.24432/C50P49)",
)
def read(options: DigitsOptions, split: str, inputs: Inputs) -> Dataset:
    """1,797 handwritten digits of 8x8, bundled; data float32 [1, 8, 8] in 0..1, label int32.

    `test` is every fifth record (index % 5 == 4, 359 records), `train` the other 1,438, `all` both.
    """
    packed = (files(__package__) / _FILE).read_bytes()
    if hashlib.sha256(packed).hexdigest() != _SHA256:
        raise InternalError(f"the bundled {_FILE} is damaged; install mxrun again")
    text = gzip.decompress(packed).decode("ascii").replace("\n", ",")
    table = np.fromstring(text, np.uint8, 1797 * 65, sep=",").reshape(1797, 65)
    fifth = np.arange(len(table)) % 5 == 4
    selected = {"train": ~fifth, "test": fifth, "all": np.ones_like(fifth)}[split]
    images = np.ascontiguousarray(table[selected, :64]).reshape(-1, 1, 8, 8)
    fields = {
        "data": Field.images(images, WHITE),
        "label": Field(table[selected, 64].astype(np.int32)),
    }
    return Dataset("digits", fields, tuple("0123456789"), split)
