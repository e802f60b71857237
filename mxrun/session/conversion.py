"""`convert`: a network and its parameters in another framework's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxrun.base.errors import Diagnostic, UserError
from mxrun.build import Built
from mxrun.config.bundled import find_config
from mxrun.convert.onnx import to_onnx
from mxrun.convert.onnx_model import OPSET, Array, OnnxModel
from mxrun.session.build import load
from mxrun.session.trained import Trained
from mxrun.train.initializer import initial_value

# Protobuf's limit for one message; larger models would want their parameters in another file.
_LARGEST = (1 << 31) - 1


@dataclass(frozen=True)
class ConvertRequest:
    """What is converted, and where to.

    source: a config, or the folder of a run or checkpoint; checkpoint: of a run, as `infer` has it.
    batch: the only batch size that the result is for; by default it is for any.
    """

    source: str
    file: Path
    overrides: tuple[str, ...] = ()
    checkpoint: str | None = None
    batch: int | None = None


@dataclass(frozen=True)
class Converted:
    """What was written: tensors as (type, sizes); notes say where parameters are from."""

    file: Path
    bytes: int
    parameters: int
    operators: int
    inputs: Mapping[str, tuple[str, Sequence[int | str]]]
    outputs: Mapping[str, tuple[str, Sequence[int | str]]]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The result for machines; `parameters` counts numbers, a size in words may vary."""
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
        }


def convert(request: ConvertRequest) -> Converted:
    """Write a network's inference graph as ONNX.

    Raises UserError for operators that have no form there and a file that cannot be written.
    """
    built, arrays, notes = _source(request)
    model = onnx_model(built, arrays, any_batch=request.batch is None)
    content = model.encoded()
    if len(content) > _LARGEST:
        raise UserError(
            Diagnostic(
                "the model is too large for one ONNX file",
                expected=f"at most {_LARGEST:,} bytes",
                got=f"{len(content):,}",
            )
        )
    try:
        request.file.write_bytes(content)
    except OSError as error:
        raise UserError(Diagnostic(f"{request.file} cannot be written", got=str(error))) from error
    return Converted(
        file=request.file,
        bytes=len(content),
        parameters=sum(arrays[name].size for name in model.constants if name in arrays),
        operators=len(model.nodes),
        inputs={value.name: (value.dtype, value.shape) for value in model.inputs},
        outputs={value.name: (value.dtype, value.shape) for value in model.outputs},
        notes=notes,
    )


def onnx_model(built: Built, arrays: Mapping[str, Array], any_batch: bool) -> OnnxModel:
    """The inference graph of a built network with these parameters and auxiliary states."""
    model = built.model
    return to_onnx(built.config.name, model.symbol.heads, model.inputs, arrays, any_batch)


def initial_arrays(built: Built) -> dict[str, Array]:
    """Every parameter and auxiliary state as a run begins with it."""
    return {
        name: initial_value(built.training.initializers[name], name, spec.shape, built.config.seed)
        for name, spec in built.model.learned.items()
    }


def _source(request: ConvertRequest) -> tuple[Built, Mapping[str, Array], tuple[str, ...]]:
    """The network, its arrays, and where those are from."""
    path = Path(request.source)
    if path.is_dir():
        if request.overrides:
            raise UserError("a run's config is as it was trained: KEY=VALUE goes with configs")
        trained = Trained.open(path, request.checkpoint, request.batch)
        return trained.built, trained.arrays, trained.notes
    if request.checkpoint is not None:
        raise UserError("--checkpoint goes with a run's folder")
    built = load(find_config(request.source), request.overrides, request.batch)
    return built, initial_arrays(built), ("the parameters are initial ones: nothing is trained",)
