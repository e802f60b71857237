"""Arrays in .npy files of a folder, one per input of the network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from pydantic import Field as Option

from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.files import find_file, unreadable_error, user_path
from mxrun.io.formats.array_files import ArrayOptions, are_lazy, array_dataset
from mxrun.io.formats.npy import read_npy
from mxrun.io.formats.stored_arrays import StoredArray, stored_npy
from mxrun.io.paths import PathText


class NpyOptions(ArrayOptions):
    """Folder of the arrays, their names, and which of them are images."""

    path: PathText = Option(
        description="Folder with data.npy, label.npy, ... as numpy.save writes them. A relative "
        "path starts at the config's folder.",
        examples=["arrays"],
    )


@register("npy", NpyOptions, ("all",), lazy=are_lazy)
def read(options: NpyOptions, split: str, inputs: Inputs) -> Dataset:
    """Arrays [records, ...]; numbers in the input's dtype, those of images in 0..1.

    Labels that are words are classes, numbered in the order of their sorted names.
    """
    folder = user_path(options.path)
    return array_dataset("npy", (folder,), inputs, options, _read_files, _find)


def _read_files(folder: Path, names: tuple[str, ...]) -> Mapping[str, NDArray[Any]]:
    found = {}
    for name in names:
        path = find_file(folder, f"{name}.npy")
        try:
            with path.open("rb") as stream:
                found[name] = read_npy(stream, path, words=True)
        except OSError as error:
            raise unreadable_error(path, error) from error
    return found


def _find(folder: Path, name: str) -> StoredArray:
    return stored_npy(find_file(folder, f"{name}.npy"))
