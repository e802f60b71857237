"""Columns of Parquet files, or of Arrow's own (IPC, Feather)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pydantic import Field as Option

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters, Positive
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs, LazyField
from mxrun.io.dataset.registry import register
from mxrun.io.formats.arrays import array_field
from mxrun.io.formats.arrow_columns import ArrowTable
from mxrun.io.formats.arrow_files import ArrowFile
from mxrun.io.formats.class_names import check_class_numbers
from mxrun.io.formats.images_option import IMAGES, check_images
from mxrun.io.formats.labels import LabelForm, LabelNumbers, label_fields, number_fields
from mxrun.io.images.decode import image_channels
from mxrun.io.images.options import ExifOrientation
from mxrun.io.loading.batch import is_label
from mxrun.io.paths import PATHS_DOC, Paths, PathText, find_files

_INPUTS: Inputs = {"data": TensorSpec(()), "label": TensorSpec((), "int32")}


class ParquetOptions(Parameters):
    """Files, and the columns of the network's inputs."""

    path: Paths = Option(
        description="The file, Parquet or Arrow IPC (Feather); it needs pip install "
        "'mxrun[arrow]'. " + PATHS_DOC.format(suffix="parquet"),
        examples=["train-00000-of-00001.parquet"],
    )
    columns: dict[PathText, PathText | tuple[PathText, ...]] = Option(
        default={},
        description="Column of each input of the network, or several columns of numbers; default: "
        "the one with the input's name.",
        examples=[{"data": "image", "label": "label"}],
    )
    images: dict[PathText, Positive] = IMAGES
    classes: tuple[PathText, ...] = Option(
        default=(),
        description="Names of the classes in the order of their numbers; default: sorted.",
        examples=[["cat", "dog"]],
    )
    exif_orientation: ExifOrientation = True


@register(
    "parquet",
    ParquetOptions,
    ("all",),
    lazy=True,
    suffixes=[".parquet", ".arrow", ".feather"],
    image_options={".parquet": {"columns": {"data": "image"}}},
)
def read(options: ParquetOptions, split: str, inputs: Inputs) -> Dataset:
    """Columns of numbers, of lists of numbers, of words, which are classes, or of image files.

    Images are bytes, or structures with bytes as Hugging Face writes them: data [channels, any,
    any] in 0..1, grey or colour as the network's input. They are decoded when their batch is made.
    Other columns are read into memory.
    """
    check_images(options.images, inputs or _INPUTS)
    table = ArrowTable(tuple(ArrowFile(path) for path in find_files(options.path)))
    fields: dict[str, Field] = {}
    lazy: dict[str, LazyField] = {}
    classes: tuple[str, ...] = ()
    for name, spec in (inputs or _INPUTS).items():
        chosen = options.columns.get(name, name)
        columns = (chosen,) if isinstance(chosen, str) else chosen
        table.check(columns)
        if is_label(name) and len(columns) == 1:
            fields[name], classes = _label(table, columns[0], {"label": spec}, options.classes)
        elif len(columns) == 1 and table.is_image(columns[0]):
            lazy[name] = table.image_column(columns[0], image_channels(inputs.get(name)))
        else:
            fields[name] = _numbers(table, columns, spec, options.images.get(name))
    return Dataset("parquet", fields, classes, split, lazy=lazy)


def _label(
    table: ArrowTable, name: str, inputs: Inputs, known: tuple[str, ...]
) -> tuple[Field, tuple[str, ...]]:
    """Return a column as labels, and the names of the classes."""
    values = table.numbers(name)
    if isinstance(values, list):
        fields, classes = label_fields(values, inputs, table.locate, LabelForm(None, known))
        return fields["label"], classes
    width = values[0].size
    counts = np.full(len(values), width, np.int64)
    labels = LabelNumbers(values.reshape(-1).astype(np.float64), counts)
    field = number_fields(labels, inputs, table.locate)["label"]
    classes = known or table.class_names(name)
    if not classes or field.spec != TensorSpec((), "int32"):
        return field, ()
    check_class_numbers(field, classes, f"{table.files[0].path}: column {name!r}")
    return field, classes


def _numbers(
    table: ArrowTable, names: tuple[str, ...], spec: TensorSpec, white: float | None
) -> Field:
    """Return columns of numbers, side by side, in the network's shape if they have its size."""
    parts: list[NDArray[np.generic]] = []
    for name in names:
        values = table.numbers(name)
        if isinstance(values, list):
            problem = f"{table.files[0].path}: column {name!r} holds words, not numbers"
            raise UserError(Diagnostic(problem, None, str(spec)))
        parts.append(values)
    joined = np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)
    shape = parts[0].shape[1:] if len(parts) == 1 else joined.shape[1:]
    joined = joined.reshape(-1, *(spec.shape if joined[0].size == spec.elements else shape))
    where = f"{table.files[0].path}: column {names[0]!r}"
    return array_field(joined, spec, where, white)
