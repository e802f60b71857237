"""Implementation of `convert`: export of a network and its parameters to another framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.files import check_outputs, write_bytes
from mxrun.config.bundled import find_config, is_config
from mxrun.config.foreign_files import foreign_weights
from mxrun.convert.onnx_model import OPSET, Array
from mxrun.frontend import ModelDefinition
from mxrun.inference.onnx_file import onnx_file
from mxrun.options.convert import ConvertOptions
from mxrun.preparation.parameter_init import initial_arrays
from mxrun.preparation.planning import load, trust_plugins
from mxrun.run.trained_model import TrainedModel
from mxrun.train.run_directory import find_run, is_run


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


def convert(options: ConvertOptions) -> Converted:
    """Write a network's inference graph as ONNX.

    Raises UserError for operators without an ONNX form and for a file that cannot be written.
    """
    if (other := foreign_weights(options.output)[0]) and options.output.suffix.lower() != ".onnx":
        raise UserError(
            Diagnostic(
                f"{options.output} is named like {other}, but convert writes ONNX",
                hint=f"name it {options.output.with_suffix('.onnx')}; the weights alone are in a "
                "run's checkpoints, as safetensors",
            )
        )
    named = _named_source(options)
    if options.allow_plugins:
        trust_plugins(named, options.overrides)
    source = _source(options, named)
    check_outputs({named: "SOURCE"}, {"--output": options.output})
    built, arrays = source.built, source.arrays
    model, content = onnx_file(built, arrays, source.trained, any_batch=options.batch is None)
    write_bytes(options.output, content)
    return Converted(
        file=options.output,
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


def _named_source(options: ConvertOptions) -> Path:
    """Return the path of the run, or the path or bundled name of the config.

    A bundled config's name means the config, unless a checkpoint is requested.
    """
    if options.checkpoint is None and is_config(options.source):
        return Path(options.source)
    return find_run(options.source, options.runs)


def _source(options: ConvertOptions, path: Path) -> _ExportedNetwork:
    """Load the network to convert."""
    if path.is_dir():
        if options.overrides:
            raise UserError(
                Diagnostic(
                    "a run's config cannot be changed: KEY=VALUE goes with configs",
                    got=" ".join(options.overrides),
                    hint="leave that out, or convert a config in place of the run's folder",
                )
            )
        trained = TrainedModel.open(
            path, options.checkpoint, options.batch, options.allow_changes, needs_device=False
        )
        return _ExportedNetwork(trained.built, trained.arrays, trained.notes, trained)
    if options.checkpoint is not None:
        raise UserError(
            Diagnostic(
                "--checkpoint goes with a run's folder",
                got=f"a config, {options.source}",
                hint="leave out --checkpoint: a config has no trained parameters; or name the run, "
                "such as runs/digits_lenet",
            )
        )
    built = load(find_config(options.source), options.overrides, options.batch, needs_device=False)
    notes = ["the parameters are initial ones: nothing is trained"]
    run = find_run(options.source, options.runs)
    if is_run(run):
        notes.append(f"{run} is a run of that name: mxrun convert {run} writes its parameters")
    return _ExportedNetwork(built, initial_arrays(built), tuple(notes))
