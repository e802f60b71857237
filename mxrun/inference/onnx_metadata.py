"""Metadata of an ONNX file: class names, and the preprocessing of records."""

from __future__ import annotations

import json
from typing import Any

from mxrun.base.tensor import TensorSpec
from mxrun.frontend import ModelDefinition
from mxrun.frontend.data import evaluation_pipeline
from mxrun.io.dataset.pixels import WHITE
from mxrun.io.images.decode import takes_images
from mxrun.io.loading.batch import is_label
from mxrun.io.series.encoding import SeriesEncoding
from mxrun.preparation.synthetic_data import trained_on_synthetic_data
from mxrun.run.trained_model import TrainedModel

RUN, CLASSES, PREPROCESSING = "mxrun.run", "mxrun.classes", "mxrun.preprocessing"
SYNTHETIC = "mxrun.synthetic_data"
VOCABULARY, SERIES = "mxrun.vocabulary", "mxrun.series"
# Colours of an image by its number of channels.
_COLORS = {1: "gray", 3: "RGB"}


def onnx_metadata(
    built: ModelDefinition, trained: TrainedModel | None, inputs: list[str]
) -> dict[str, str]:
    """Return the metadata_props of a network with these inputs: texts, and JSON in ASCII.

    mxrun.run: name of the run or config. mxrun.classes: list of class names by number, if training
    had them. mxrun.preprocessing: for each input, the evaluation pipeline of a record.
    mxrun.vocabulary: of a network trained on texts, what turns these into ids: its kind and tokens,
    in the order of ids. mxrun.series: of a network of a series, its window, horizon and clock, and
    the columns whose scaling is undone in forecasts. mxrun.synthetic_data: true if the run was
    trained on synthetic data.
    """
    preprocessing = {name: _preprocessing(built, trained, name) for name in inputs}
    found = {RUN: built.options.name, PREPROCESSING: json.dumps(preprocessing)}
    if trained is not None and trained.classes:
        found[CLASSES] = json.dumps(trained.classes)
    if trained is not None and trained.vocabulary is not None:
        vocabulary = trained.vocabulary
        found[VOCABULARY] = json.dumps({"kind": vocabulary.kind, **vocabulary.to_json()})
    encoding = None if trained is None else trained.checkpoint.manifest.encoding
    if isinstance(encoding, SeriesEncoding):
        saved = encoding.model_dump(mode="json", exclude={"columns", "cells", "naive_errors"})
        targets = [each.model_dump(mode="json") for each in encoding.target_columns]
        found[SERIES] = json.dumps({**saved, "targets": targets})
    if trained is not None and trained_on_synthetic_data(built.options):
        found[SYNTHETIC] = json.dumps(True)
    return found


def _preprocessing(
    built: ModelDefinition, trained: TrainedModel | None, name: str
) -> dict[str, Any]:
    """Return the preprocessing from the records of one input to its rows.

    shape: of one row. layout and color: for an input that takes images. columns: of the table that
    the network was trained on, in the row's order, if they have names. scale: the factors of an
    image's bytes and of arrays' numbers, which give the values that normalize reads; known for
    trained networks alone. encoding: of a table's columns, if the row holds these encoded, as a
    checkpoint's manifest has it; columns are then the names of the row's numbers; cells: the form
    of numbers and missing values in the table's cells. transforms: in
    order, each {name: parameters}, as in a config.
    """
    spec = built.model.records[name]
    pipeline = evaluation_pipeline(built.options.data)
    transforms = [
        {step.transform.name: step.transform.model_dump(mode="json")} for step in pipeline.of(name)
    ]
    scale = {} if trained is None else {"scale": _scale(trained, name, spec)}
    known = {**_image(spec), **_columns(trained, name, spec), **scale}
    return {"shape": list(spec.shape), **known, "transforms": transforms}


def _columns(trained: TrainedModel | None, name: str, spec: TensorSpec) -> dict[str, Any]:
    """Return the names of the columns that a row of the input holds, in its order."""
    manifest = None if trained is None else trained.checkpoint.manifest
    if manifest is not None and isinstance(manifest.encoding, SeriesEncoding):
        return _step(manifest.encoding, name)
    if manifest is not None and manifest.encoding is not None and name == "data":
        encoding = manifest.encoding
        saved = encoding.model_dump(mode="json")
        encoded = {"encoding": saved["columns"], "cells": saved["cells"]}
        return {"columns": list(encoding.inputs), **encoded}
    columns = () if manifest is None else manifest.columns
    is_table = not is_label(name) and len(columns) == spec.elements
    return {"columns": list(columns)} if columns and is_table else {}


def _step(encoding: SeriesEncoding, name: str) -> dict[str, Any]:
    """Return what a step of an input of a series holds: of the past, the future or the naive one.

    Inputs that are computed from `data` have `of`, its steps from the end.
    """
    saved = encoding.model_dump(mode="json")
    back, length = encoding.naive_steps
    chosen = {
        "data": slice(None),
        "last": slice(None),
        "future": slice(len(encoding.columns) - encoding.known, None),
        "naive": slice(encoding.targets),
    }.get(name)
    if chosen is None:
        return {}
    columns = saved["columns"][chosen]
    names = [each for column in encoding.columns[chosen] for each in column.inputs]
    steps = {"last": [-1, None], "naive": [-back, length - back or None]}
    of = {"of": steps[name]} if name in steps else {}
    return {"columns": names, "encoding": columns, "cells": saved["cells"], **of}


def _image(spec: TensorSpec) -> dict[str, str]:
    """Return the order of axes and the colours of an input that takes images."""
    if not takes_images(spec):
        return {}
    return {"layout": "CHW", "color": _COLORS[spec.shape[0]]}


def _scale(trained: TrainedModel, name: str, spec: TensorSpec) -> dict[str, float]:
    """Return the factors of bytes as in inference."""
    white = trained.checkpoint.manifest.whites.get(name)
    if white is None:
        return {"images": 1.0, "arrays": 1.0} if takes_images(spec) else {}
    return {"images": 1 / WHITE, "arrays": 1 / white}
