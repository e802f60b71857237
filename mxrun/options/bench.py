"""Options of `mxrun bench`."""

from pathlib import Path
from typing import Annotated, Literal

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.options.declaration import Option
from mxrun.options.shared import Batch, Config, Json, Overrides, Threads


def _names(text: str) -> tuple[str, ...]:
    """Split `torch,mxnet` into names of peers. Raises UserError if a name is empty."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        problem = "--against has an empty name of a peer"
        expected = "peers, such as torch or torch,mxnet"
        raise UserError(Diagnostic(problem, expected=expected, got=repr(text)))
    return names


def _pair(text: str) -> tuple[str, str]:
    """Split `peer=path`. Raises UserError for any other form."""
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        problem = f"--peer-python {text}: cannot be read as a peer and its Python"
        raise UserError(Diagnostic(problem, expected="PEER=PATH, such as mxnet=env/bin/python"))
    return name, path


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """Options of a measurement."""

    config: Config
    overrides: Overrides = ()
    phase: Annotated[Literal["train", "infer"], Option("Measure training or inference.")] = "train"
    batch: Batch = None
    threads: Threads = None
    ranks: Annotated[
        int, Option("Measure training in N processes, which mpirun starts.", "N", minimum=1)
    ] = 1
    steps: Annotated[int, Option("Number of timed steps.", "N", minimum=1)] = 100
    warmup: Annotated[int, Option("Warm-up steps after the first.", "N", minimum=0)] = 10
    trace: Annotated[
        Path | None, Option("Write a trace of the profiled steps, for ui.perfetto.dev.", "FILE")
    ] = None
    remeasure: Annotated[
        bool, Option("Measure the machine's peak speeds again, not using the cache.")
    ] = False
    against: Annotated[
        tuple[str, ...] | None,
        Option(
            "Compare with other programs (peers) on the same network: torch, torch-compile, "
            "mxnet; for inference also onnxruntime, openvino.",
            "PEER,PEER...",
            usual="none",
            parse=_names,
        ),
    ] = None
    peer_python: Annotated[
        tuple[tuple[str, str], ...],
        Option(
            "Python interpreter that has the peer installed, if not this one.",
            "PEER=PATH",
            parse=_pair,
        ),
    ] = ()
    json: Json = False
