"""NumPy archives: arrays of equal length, one per input of the network."""

from __future__ import annotations

from functools import partial

from pydantic import Field as Option

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.formats.array_files import ArrayOptions, are_lazy, array_dataset
from mxrun.io.formats.npy import read_npz
from mxrun.io.formats.stored_arrays import stored_npz
from mxrun.io.paths import PATHS_DOC, Paths, find_files


class NpzOptions(ArrayOptions):
    """Path of the archive, names of its arrays, and which of them are images."""

    path: Paths = Option(
        description="The archive, as numpy.savez writes it. " + PATHS_DOC.format(suffix="npz"),
        examples=["data.npz"],
    )


@register(
    "npz",
    NpzOptions,
    ("all",),
    lazy=are_lazy,
    suffixes=[".npz"],
    foreign={"npz": "numpy arrays tensordataset"},
)
def read(options: NpzOptions, split: str, inputs: Inputs) -> Dataset:
    """Arrays [records, ...]; numbers in the input's dtype, those of images in 0..1.

    Labels that are words are classes, numbered in the order of their sorted names.
    """
    paths = find_files(options.path)
    return array_dataset("npz", paths, inputs, options, partial(read_npz, words=True), stored_npz)
