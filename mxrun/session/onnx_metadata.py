"""What an ONNX file says beside its graph: class names, and how records become the inputs."""

from __future__ import annotations

import json
from typing import Any

from mxrun.base.tensor import TensorSpec
from mxrun.frontend import ModelDefinition
from mxrun.frontend.data import evaluation_pipeline
from mxrun.io.sample import image_scale
from mxrun.session.synthetic_data import trained_on_synthetic_data
from mxrun.session.trained_model import TrainedModel

RUN, CLASSES, PREPROCESSING = "mxrun.run", "mxrun.classes", "mxrun.preprocessing"
SYNTHETIC = "mxrun.synthetic_data"
# What the channels of an image are, by their number.
_COLORS = {1: "gray", 3: "RGB"}


def onnx_metadata(
    built: ModelDefinition, trained: TrainedModel | None, inputs: list[str]
) -> dict[str, str]:
    """The metadata_props of a network with these inputs: texts, and JSON in ASCII.

    mxrun.run: the name of the run or config. mxrun.classes: the list of class names by number,
    where training had some. mxrun.preprocessing: of each input, what evaluation does to a record.
    mxrun.synthetic_data: true, where a run was trained on such data.
    """
    preprocessing = {name: _preprocessing(built, trained, name) for name in inputs}
    found = {RUN: built.config.name, PREPROCESSING: json.dumps(preprocessing)}
    if trained is not None and trained.classes:
        found[CLASSES] = json.dumps(trained.classes)
    if trained is not None and trained_on_synthetic_data(built.config):
        found[SYNTHETIC] = json.dumps(True)
    return found


def _preprocessing(
    built: ModelDefinition, trained: TrainedModel | None, name: str
) -> dict[str, Any]:
    """How the records of one input become its rows.

    shape: of one row. layout and color: of an input that takes images. scale: the factors of an
    image's bytes and of arrays of bytes, which make the values that normalize takes; known of
    trained networks alone. transforms: in order, each {name: parameters}, as a config has them.
    """
    spec = built.model.records[name]
    pipeline = evaluation_pipeline(built.config.data)
    transforms = [
        {step.transform.name: step.transform.model_dump(mode="json")} for step in pipeline.of(name)
    ]
    scale = {} if trained is None else {"scale": _scale(trained, name, spec)}
    return {"shape": list(spec.shape), **_image(spec), **scale, "transforms": transforms}


def _image(spec: TensorSpec) -> dict[str, str]:
    """The order of axes and colours of an input that takes images."""
    if not _takes_images(spec):
        return {}
    return {"layout": "CHW", "color": _COLORS[spec.shape[0]]}


def _scale(trained: TrainedModel, name: str, spec: TensorSpec) -> dict[str, float]:
    """The factors of bytes, as inference has them."""
    scale = trained.checkpoint.manifest.scales.get(name)
    images = {"images": image_scale(scale)} if _takes_images(spec) else {}
    return images if scale is None else {**images, "arrays": scale.bytes}


def _takes_images(spec: TensorSpec) -> bool:
    return len(spec.shape) == 3 and spec.shape[0] in _COLORS and spec.dtype == "float32"
