"""Implementation of `convert`: export of a network and its parameters to another framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mxrun import __version__
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import check_outputs, write_bytes
from mxrun.config.bundled import find_config
from mxrun.convert.onnx_model import OPSET, Array
from mxrun.frontend import ModelDefinition
from mxrun.session.onnx_export import initial_arrays, onnx_model
from mxrun.session.onnx_metadata import onnx_metadata
from mxrun.session.planning import load, trust_plugins
from mxrun.session.trained_model import TrainedModel

# Protobuf's limit for one message; larger models would need a separate file of parameters.
_MAX_FILE_BYTES = (1 << 31) - 1


@dataclass(frozen=True)
class ConvertRequest:
    """Source and target of a conversion.

    source: a config, or the folder of a run or checkpoint. checkpoint: selects one of a run, as in
    `infer`. batch: the only batch size of the result; by default it accepts any. allow_changes:
    also convert if config or plugins have changed since the run. allow_plugins: trust the source's
    plugins, from now on.
    """

    source: str
    file: Path
    overrides: tuple[str, ...] = ()
    checkpoint: str | None = None
    batch: int | None = None
    allow_changes: bool = False
    allow_plugins: bool = False


@dataclass(frozen=True)
class Converted:
    """Summary of the written file.

    inputs, outputs: (type, sizes) by name. metadata: as in the file. notes: origin of the
    parameters.
    """

    file: Path
    bytes: int
    parameters: int
    operators: int
    inputs: Mapping[str, tuple[str, Sequence[int | str]]]
    outputs: Mapping[str, tuple[str, Sequence[int | str]]]
    metadata: Mapping[str, str]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON: `parameters` counts elements, text sizes are variable."""
        tensors = {"inputs": self.inputs, "outputs": self.outputs}
        return {
            "file": str(self.file),
            "form": "onnx",
            "opset": OPSET,
            "bytes": self.bytes,
            "parameters": self.parameters,
            "operators": self.operators,
            **{
                kind: {
                    name: {"dtype": dtype, "shape": list(sizes)}
                    for name, (dtype, sizes) in of.items()
                }
                for kind, of in tensors.items()
            },
            "metadata": dict(self.metadata),
        }


def convert(request: ConvertRequest) -> Converted:
    """Write a network's inference graph as ONNX.

    Raises UserError for operators without an ONNX form and for a file that cannot be written.
    """
    if request.allow_plugins:
        trust_plugins(request.source, request.overrides)
    source = _source(request)
    check_outputs({Path(request.source): "SOURCE"}, {"--output": request.file})
    built, arrays = source.built, source.arrays
    model = onnx_model(built, arrays, any_batch=request.batch is None)
    metadata = onnx_metadata(built, source.trained, [value.name for value in model.inputs])
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
    write_bytes(request.file, content)
    return Converted(
        file=request.file,
        bytes=len(content),
        parameters=sum(arrays[name].size for name in model.constants if name in arrays),
        operators=len(model.nodes),
        inputs={value.name: (value.dtype, value.shape) for value in model.inputs},
        outputs={value.name: (value.dtype, value.shape) for value in model.outputs},
        metadata=metadata,
        notes=source.notes,
    )


@dataclass(frozen=True, eq=False)
class _ExportedNetwork:
    """Network and its arrays; `trained` is set for a run. notes: origin of the arrays."""

    built: ModelDefinition
    arrays: Mapping[str, Array]
    notes: tuple[str, ...]
    trained: TrainedModel | None = None


def _source(request: ConvertRequest) -> _ExportedNetwork:
    """Load the network to convert."""
    path = Path(request.source)
    if path.is_dir():
        if request.overrides:
            raise UserError(
                Diagnostic(
                    "a run's config cannot be changed: KEY=VALUE goes with configs",
                    got=" ".join(request.overrides),
                    hint="leave that out, or convert a config in place of the run's folder",
                )
            )
        trained = TrainedModel.open(
            path, request.checkpoint, request.batch, request.allow_changes, needs_device=False
        )
        return _ExportedNetwork(trained.built, trained.arrays, trained.notes, trained)
    if request.checkpoint is not None:
        raise UserError(
            Diagnostic(
                "--checkpoint goes with a run's folder",
                got=f"a config, {request.source}",
                hint="leave out --checkpoint: a config has no trained parameters; or name the run, "
                "such as runs/digits_lenet",
            )
        )
    built = load(find_config(request.source), request.overrides, request.batch, needs_device=False)
    notes = ("the parameters are initial ones: nothing is trained",)
    return _ExportedNetwork(built, initial_arrays(built), notes)
