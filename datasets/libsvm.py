"""Records of numbers, most of them zero, in LIBSVM's text format."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field as Option

from mxrun.base.params import Parameters
from mxrun.base.tensor import TensorSpec
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Field, Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.formats.labels import LabelForm, LabelValue, label_fields
from mxrun.io.formats.libsvm import read_libsvm
from mxrun.io.paths import PATHS_DOC, Paths, PathText, find_files


class LibsvmOptions(Parameters):
    """Files and the form of their indices and labels."""

    path: Paths = Option(
        description="The file, with a line `label index:value index:value ...` for each record. "
        + PATHS_DOC.format(suffix="svm"),
        examples=["a9a.svm"],
    )
    first_index: Literal[0, 1] = Option(
        default=1,
        description="Index of the first column: 1 as in LIBSVM's files, 0 as in those of MXNet.",
    )
    separator: PathText | None = Option(
        default=None,
        description="Separator of several classes in one label, whose numbers are then 1 for each "
        "class of the record and 0 for the others; default: a label is one class.",
        examples=[","],
    )
    classes: tuple[PathText, ...] = Option(
        default=(),
        description="Names of the classes in the order of their numbers; default: sorted.",
        examples=[["-1", "1"]],
    )


@register("libsvm", LibsvmOptions, ("all",), suffixes=[".svm", ".libsvm"])
def read(options: LibsvmOptions, split: str, inputs: Inputs) -> Dataset:
    """Records of numbers; data float32 in the network's input shape, zero where none is written.

    Labels are class numbers, or, if some are negative or words, names of classes in ascending
    order; for a float32 input numbers, [] or with commas between them [n].
    """
    records = read_libsvm(find_files(options.path), options.first_index)
    shape = inputs["data"].shape if "data" in inputs else (records.width,)
    data = records.dense(math.prod(shape))
    form = LabelForm(options.separator, options.classes)
    labels: Sequence[LabelValue] = records.labels
    if inputs.get("label", TensorSpec((), "int32")) == TensorSpec((), "int32"):
        labels, names = _class_names(records.labels)
        form = LabelForm(options.separator, options.classes or names)
    fields, classes = label_fields(labels, inputs, records.locate, form)
    fields["data"] = Field(data.reshape(-1, *shape))
    return Dataset("libsvm", fields, classes, split, notes=records.notes)


def _class_names(labels: Sequence[str]) -> tuple[Sequence[str], tuple[str, ...]]:
    """Return labels with numbers in one form (+1 and 1.0 are 1), and the names they need.

    Whole numbers from 0 need none. Other numbers are names, in ascending order.
    """
    try:
        numbers = {label: float(label) for label in dict.fromkeys(labels)}
    except ValueError:
        return labels, ()
    if not all(map(math.isfinite, numbers.values())):
        # NaN among numbers is refused where classes get their numbers.
        return labels, ()
    names = {label: f"{number:.17g}" for label, number in numbers.items()}
    kinds = sorted(set(numbers.values()))
    are_numbers = all(kind >= 0 and kind == int(kind) for kind in kinds)
    known = () if are_numbers else tuple(f"{kind:.17g}" for kind in kinds)
    return [names[label] for label in labels], known
