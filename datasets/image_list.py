"""Images that a text file lists, each with its class."""

from __future__ import annotations

from pydantic import Field as Option

from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.files import user_path
from mxrun.io.formats.image_files import image_column
from mxrun.io.formats.image_list import read_image_list
from mxrun.io.formats.labels import word_classes
from mxrun.io.images.decode import image_channels


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
    label, names = word_classes(listed.labels)
    files = [(b"", file) for file in listed.files]
    lazy = {"data": image_column(files, image_channels(inputs.get("data")))}
    return Dataset("image_list", {"label": label}, names, split, lazy=lazy)
