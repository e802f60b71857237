"""Images that a text file lists, each with its class."""

from __future__ import annotations

from functools import partial

from pydantic import Field as Option

from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.pixels import IMAGES
from mxrun.io.dataset.registry import register
from mxrun.io.files import user_path
from mxrun.io.formats.image_files import frame_notes, image_column, locate_image
from mxrun.io.formats.image_list import read_image_list
from mxrun.io.formats.labels import LabelForm, label_fields
from mxrun.io.images.decode import image_channels
from mxrun.io.images.options import ExifOrientation
from mxrun.io.paths import PATHS_DOC, Paths, PathText, find_files


class ImageListOptions(Parameters):
    """The list."""

    path: Paths = Option(
        description="The list: a text file with a row `file,label` for each image, or MXNet's list "
        "of number, labels and file. Tabs may separate them, a header may name them. "
        + PATHS_DOC.format(suffix="csv"),
        examples=["photos.csv"],
    )
    root: PathText | None = Option(
        default=None,
        description="Folder at which the files' names start; default: the list's folder, at which "
        "a relative one starts.",
        examples=["images"],
    )
    separator: PathText | None = Option(
        default=None,
        description="Separator of several classes in one label, whose numbers are then 1 for each "
        "class of the image and 0 for the others; default: a label is one class.",
        examples=["|"],
    )
    classes: tuple[PathText, ...] = Option(
        default=(),
        description="Names of the classes in the order of their numbers; default: sorted.",
        examples=[["cat", "dog"]],
    )
    exif_orientation: ExifOrientation = True


@register("image_list", ImageListOptions, ("all",), lazy=True, images=IMAGES)
def read(options: ImageListOptions, split: str, inputs: Inputs) -> Dataset:
    """Images of a list; data [channels, any, any] in 0..1, grey or colour as the network's input.

    Labels are class numbers, or names of classes, which are numbered in the order of the sorted
    names; several numbers of an image are a label float32 [n], or boxes, float32 [objects, n], as
    the network's input. Images are decoded when their batch is made.
    """
    root = None if options.root is None else user_path(options.root)
    lists = [
        read_image_list(path, None if root is None else path.parent / root)
        for path in find_files(options.path)
    ]
    files = [(b"", file) for each in lists for file in each.files]
    data = image_column(files, image_channels(inputs.get("data")))
    form = LabelForm(options.separator, options.classes)
    values = [label for each in lists for label in each.labels]
    fields, classes = label_fields(values, inputs, partial(locate_image, files), form)
    notes = *(each.note for each in lists if each.note), *frame_notes([path for _, path in files])
    return Dataset("image_list", fields, classes, split, lazy={"data": data}, notes=notes)
