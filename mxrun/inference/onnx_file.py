"""Content of an ONNX file: the model of a network with its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mxrun import __version__
from mxrun.base.errors import Diagnostic, UserError
from mxrun.convert.onnx_model import Array, OnnxModel
from mxrun.frontend import ModelDefinition
from mxrun.inference.onnx_export import onnx_model
from mxrun.inference.onnx_metadata import onnx_metadata
from mxrun.inference.outputs import heads
from mxrun.run.trained_model import TrainedModel

# Protobuf's limit for one message; larger models would need a separate file of parameters.
_MAX_FILE_BYTES = (1 << 31) - 1


def onnx_file(
    built: ModelDefinition,
    arrays: Mapping[str, Array],
    trained: TrainedModel | None,
    any_batch: bool,
) -> tuple[OnnxModel, bytes]:
    """Return the inference graph of a network, and the content of its file.

    A loss with no output but the loss is replaced by its predictions, as `infer` does.

    trained: the run of the arrays, if there is one. Raises UserError for operators without an ONNX
    form and for a model that is too large for a file.
    """
    outputs = [head.entry for head in heads(built, ())]
    model = onnx_model(built, outputs, arrays, any_batch)
    metadata = onnx_metadata(built, trained, [value.name for value in model.inputs])
    model = replace(model, producer_version=__version__, metadata=metadata)
    content = model.encoded()
    if len(content) > _MAX_FILE_BYTES:
        raise UserError(
            Diagnostic(
                "the model is too large for one ONNX file",
                expected=f"at most {_MAX_FILE_BYTES:,} bytes",
                got=f"{len(content):,}",
            )
        )
    return model, content
