"""Images that a text file lists, each with its class."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs, LazyField
from mxrun.io.dataset.location import RecordLocation
from mxrun.io.dataset.registry import register
from mxrun.io.files import user_path
from mxrun.io.formats.image_list import read_image_list
from mxrun.io.images.decode import image_channels, read_image


class ImageListOptions(Parameters):
    """The list."""

    path: str = Option(
        min_length=1,
        description="The list: a text file with a row `file,label` for each image. Tabs may "
        "separate them, a header may name them, and files are relative to the list's folder.",
        examples=["photos.csv"],
    )


@register("image_list", ImageListOptions, ("all",), lazy=True)
def read(options: ImageListOptions, split: str, inputs: Inputs) -> Dataset:
    """Images of a list; data [channels, any, any] in 0..1, grey or colour as the network's input.

    Labels are class numbers, or names of classes, which are numbered in the order of the sorted
    names. Images are decoded when their batch is made.
    """
    path = user_path(options.path)
    listed = read_image_list(path)
    names = tuple(sorted(set(listed.labels)))
    if all(name.isascii() and name.isdecimal() and len(name) < 10 for name in names):
        names, labels = (), list(map(int, listed.labels))
    else:
        number_of = {name: number for number, name in enumerate(names)}
        labels = [number_of[name] for name in listed.labels]
    channels = image_channels(inputs.get("data"))
    data = LazyField(
        partial(_read, listed.files, channels),
        len(listed.files),
        (channels, None, None),
        "uint8",
        1 / 255,
        content=partial(_digest, path, listed.files),
        locate=partial(_locate, listed.files),
    )
    fields = {"label": Field(np.array(labels, np.int32))}
    return Dataset("image_list", fields, names, split, lazy={"data": data})


def _read(files: tuple[Path, ...], channels: int, index: int) -> NDArray[Any]:
    return read_image(files[index], channels)


def _locate(files: tuple[Path, ...], index: int) -> RecordLocation:
    return RecordLocation(str(files[index]))


def _digest(path: Path, files: tuple[Path, ...]) -> str:
    """Return the SHA-256 of the list and of the bytes of its files.

    A file that cannot be read counts by its name only, as in image folders.
    """
    digest = hashlib.sha256(path.read_bytes())
    for file in files:
        try:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        except OSError:
            digest.update(b"unreadable")
    return digest.hexdigest()
