"""Implementation of `convert`: export of a network and its parameters to another framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import check_outputs, write_bytes
from mxrun.base.flags import runs_folder
from mxrun.config.bundled import find_config, is_config
from mxrun.config.foreign_files import foreign_weights
from mxrun.convert.onnx_model import OPSET, Array
from mxrun.frontend import ModelDefinition
from mxrun.session.onnx_export import initial_arrays
from mxrun.session.onnx_file import onnx_file
from mxrun.session.planning import load, trust_plugins
from mxrun.session.trained_model import TrainedModel
from mxrun.train.run_directory import find_run, is_run


@dataclass(frozen=True)
class ConvertRequest:
    """Source and target of a conversion.

    source: a config, the folder of a run or checkpoint, or the name of a run. checkpoint: selects
    one of a run, as in `infer`. batch: the only batch size of the result; by default it accepts
    any. allow_changes: also convert if config or plugins have changed since the run. allow_plugins:
    trust the source's plugins, from now on. runs: the folder of runs.
    """

    source: str
    file: Path
    overrides: tuple[str, ...] = ()
    checkpoint: str | None = None
    batch: int | None = None
    allow_changes: bool = False
    allow_plugins: bool = False
    runs: Path = field(default_factory=runs_folder)


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
    if (other := foreign_weights(request.file)[0]) and request.file.suffix.lower() != ".onnx":
        raise UserError(
            Diagnostic(
                f"{request.file} is named like {other}, but convert writes ONNX",
                hint=f"name it {request.file.with_suffix('.onnx')}; the weights alone are in a "
                "run's checkpoints, as safetensors",
            )
        )
    named = _named_source(request)
    if request.allow_plugins:
        trust_plugins(named, request.overrides)
    source = _source(request, named)
    check_outputs({named: "SOURCE"}, {"--output": request.file})
    built, arrays = source.built, source.arrays
    model, content = onnx_file(built, arrays, source.trained, any_batch=request.batch is None)
    write_bytes(request.file, content)
    return Converted(
        file=request.file,
        bytes=len(content),
        parameters=sum(arrays[name].size for name in model.constants if name in arrays),
        operators=len(model.nodes),
        inputs={value.name: (value.dtype, value.shape) for value in model.inputs},
        outputs={value.name: (value.dtype, value.shape) for value in model.outputs},
        metadata=model.metadata,
        notes=source.notes,
    )


@dataclass(frozen=True, eq=False)
class _ExportedNetwork:
    """Network and its arrays; `trained` is set for a run. notes: origin of the arrays."""

    built: ModelDefinition
    arrays: Mapping[str, Array]
    notes: tuple[str, ...]
    trained: TrainedModel | None = None


def _named_source(request: ConvertRequest) -> Path:
    """Return the path of the run, or the path or bundled name of the config.

    A bundled config's name means the config, unless a checkpoint is requested.
    """
    if request.checkpoint is None and is_config(request.source):
        return Path(request.source)
    return find_run(request.source, request.runs)


def _source(request: ConvertRequest, path: Path) -> _ExportedNetwork:
    """Load the network to convert."""
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
    notes = ["the parameters are initial ones: nothing is trained"]
    run = find_run(request.source, request.runs)
    if is_run(run):
        notes.append(f"{run} is a run of that name: mxrun convert {run} writes its parameters")
    return _ExportedNetwork(built, initial_arrays(built), tuple(notes))
