"""Image records in MXNet's RecordIO files."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field as Option

from mxrun.base.params import Parameters
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.pixels import IMAGES
from mxrun.io.dataset.registry import register
from mxrun.io.files import user_path
from mxrun.io.formats.class_names import check_class_numbers, read_class_names
from mxrun.io.formats.labels import number_fields
from mxrun.io.formats.record_table import open_records
from mxrun.io.formats.stored_images import stored_column
from mxrun.io.images.decode import image_channels
from mxrun.io.images.options import ExifOrientation
from mxrun.io.paths import PATHS_DOC, Paths, find_files, paths_of


class RecordioOptions(Parameters):
    """RecordIO files and their index files."""

    path: Paths = Option(
        description="The file, as `mxrun pack` or MXNet's im2rec writes it. "
        + PATHS_DOC.format(suffix="rec"),
        examples=["train.rec"],
    )
    index: Paths | None = Option(
        default=None,
        description="Index file of each file: reads the records in it alone, in its order. A "
        "relative path starts at the folder of the records; default: all records, of which an "
        "index beside them (train.idx beside train.rec) only checks that they are complete.",
        examples=["train.idx"],
    )
    exif_orientation: ExifOrientation = True


@register(
    "recordio",
    RecordioOptions,
    ("all",),
    lazy=True,
    images=IMAGES,
    suffixes=[".rec"],
    image_options={".rec": {}},
)
def read(options: RecordioOptions, split: str, inputs: Inputs) -> Dataset:
    """Image records; data [channels, any, any] in 0..1, grey or colour as the network's input.

    label is a class, int32 [], a number or several, float32 [] or [n], or boxes, float32 [objects,
    n], as the network's input; see the page on data. The names of the classes are the lines of a
    text file beside the records (train.classes beside train.rec), if there is one. Records without
    an image that hold ranges of record numbers, as insightface writes them first in a file and for
    each identity, are left out, with a note. Images are decoded when their batch is made.
    """
    paths = find_files(options.path)
    table = open_records(paths, _indexes(options, paths[0].parent))
    fields = number_fields(table.labels, inputs, table.locate)
    classes = read_class_names(paths)
    label = fields.get("label")
    if classes and label is not None and label.spec.dtype == "int32":
        check_class_numbers(label, classes, str(paths[0]))
    else:
        classes = ()
    channels = image_channels(inputs.get("data"))
    lazy = {"data": stored_column(table, channels)}
    return Dataset("recordio", fields, classes, split, lazy=lazy, notes=table.notes)


def _indexes(options: RecordioOptions, folder: Path) -> tuple[Path, ...]:
    if options.index is None:
        return ()
    return find_files([str(folder / user_path(text)) for text in paths_of(options.index)])
