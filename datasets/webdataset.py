"""Records in tar files, in WebDataset's layout."""

from __future__ import annotations

from pydantic import Field as Option

from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.pixels import IMAGES
from mxrun.io.dataset.registry import register
from mxrun.io.formats.labels import LabelForm, label_fields
from mxrun.io.formats.stored_images import stored_column
from mxrun.io.formats.tar_table import TarLayout, open_tar_records
from mxrun.io.images.decode import image_channels
from mxrun.io.images.options import ExifOrientation
from mxrun.io.paths import PATHS_DOC, Paths, PathText, find_files


class WebdatasetOptions(Parameters):
    """Tar files, and which of a record's members are read."""

    path: Paths = Option(
        description="The tar file, with members such as 000001.jpg and 000001.cls for each record. "
        + PATHS_DOC.format(suffix="tar"),
        examples=["train-{000..127}.tar"],
    )
    image: PathText | None = Option(
        default=None,
        description="Extension of the images, or of arrays (npy) uint8 [channels, height, width]; "
        "default: the first one that is an image's.",
        examples=["png"],
    )
    label: PathText = Option(
        default="cls",
        description="Extension of the labels: a text file with a class or numbers, or json.",
        examples=["json"],
    )
    key: PathText = Option(
        default="label",
        description="Key of the label in JSON files; dots lead into mappings: annotation.class.",
        examples=["annotation.class"],
    )
    separator: PathText | None = Option(
        default=None,
        description="Separator of several classes in one label, whose numbers are then 1 for each "
        "class of the record and 0 for the others; default: a label is one class.",
        examples=["|"],
    )
    classes: tuple[PathText, ...] = Option(
        default=(),
        description="Names of the classes in the order of their numbers; default: sorted.",
        examples=[["cat", "dog"]],
    )
    exif_orientation: ExifOrientation = True


@register(
    "webdataset",
    WebdatasetOptions,
    ("all",),
    lazy=True,
    images=IMAGES,
    suffixes=[".tar"],
    image_options={".tar": {}},
)
def read(options: WebdatasetOptions, split: str, inputs: Inputs) -> Dataset:
    """Images in tar files; data [channels, any, any] in 0..1, grey or colour as the network's
    input.

    label is a class, int32 [], a number or several, float32 [] or [n], or boxes, float32 [objects,
    n], as the network's input; see the page on data. Images are decoded when their batch is made.
    """
    layout = TarLayout(options.image or "", options.label, options.key, "label" in inputs)
    table = open_tar_records(find_files(options.path), layout)
    form = LabelForm(options.separator, options.classes)
    fields, classes = label_fields(table.labels, inputs, table.locate, form)
    channels = image_channels(inputs.get("data"))
    return Dataset(
        "webdataset", fields, classes, split, lazy={"data": stored_column(table, channels)}
    )
