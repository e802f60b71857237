"""`mxrun bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mxrun.cli.arguments import Batch, Config, Json, Overrides, PhaseName, Threads
from mxrun.cli.clock import STARTED_AT

Phase = Annotated[PhaseName, typer.Option(help="Measure training or inference.")]
Steps = Annotated[int, typer.Option(min=1, metavar="N", help="Number of timed steps.")]
Warmup = Annotated[int, typer.Option(min=0, metavar="N", help="Warm-up steps after the first.")]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a trace of the profiled steps, for ui.perfetto.dev."),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="PEER,PEER...",
        help="Compare with other programs (peers) on the same network: torch, torch-compile, "
        "mxnet; for inference also onnxruntime, openvino.",
        show_default="none",
    ),
]
PeerPython = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PEER=PATH", help="Python interpreter that has the peer installed, if not this one."
    ),
]

Remeasure = Annotated[
    bool,
    typer.Option(
        "--remeasure", help="Measure the machine's peak speeds again, not using the cache."
    ),
]


def bench(
    config: Config,
    overrides: Overrides = None,
    phase: Phase = PhaseName.TRAIN,
    batch: Batch = None,
    threads: Threads = None,
    steps: Steps = 100,
    warmup: Warmup = 10,
    trace: Trace = None,
    remeasure: Remeasure = False,
    against: Against = None,
    peer_python: PeerPython = None,
    json: Json = False,
) -> None:
    """Measure a network's steps and operators.

    Uses synthetic data; nothing is saved. Complete steps are timed first. Further steps are then
    profiled: every call is timed, to show where the time goes. To measure a run on its own data,
    use mxrun train CONFIG --profile.

    Every operator is compared with its floor, a lower bound on its time: its operations at the
    speed of a matrix product or its bytes at the speed of a copy, whichever takes longer. The
    speeds of the machine are measured once and cached; --remeasure measures them again.

    With several contexts in the config, training steps run on all of them, and the functions of
    their steps are shown with the times at which they run.

    With --against, peers run the same network on the same batches, each in a process of its own and
    in its fastest mode, alternating with mxrun. Each pair of measurements gives a ratio: above 1,
    mxrun is faster. Before any timing, the losses (inference: outputs) are compared. The peak
    memory of each process is compared too, without the synthetic batches.

    \b
    Examples:
      mxrun bench digits_lenet
      mxrun bench net.yaml --phase infer --batch 1 --threads 1
      mxrun bench net.yaml --steps 20 --trace step.json
      mxrun bench net.yaml --against torch,mxnet --peer-python mxnet=env/bin/python
      mxrun bench net.yaml --phase infer --against onnxruntime,openvino
      mxrun bench net.yaml --json
    """
    from mxrun.base.files import check_outputs
    from mxrun.report.notes import write_note
    from mxrun.report.result import write_json, write_tables
    from mxrun.report.status import status
    from mxrun.report.trace import write_trace

    check_outputs({Path(config): "CONFIG"}, {"--trace": trace})
    pythons = dict(_pair(text) for text in peer_python or ())
    names = () if against is None else _names(against)
    if pythons and not names:
        from mxrun.base.errors import Diagnostic, UserError

        problem = f"--peer-python is given for {', '.join(pythons)}, but no peer is requested"
        raise UserError(Diagnostic(problem, hint=f"add --against {','.join(pythons)}"))
    with status(f"measuring {config}"):
        from mxrun.commands import bench as command

        request = command.BenchRequest(
            phase.value, batch, threads, steps, warmup, names, pythons, remeasure
        )
        report = command.bench(config, overrides or (), request, write_note, STARTED_AT)
    if trace is not None:
        write_trace(trace, report.events())
    if json:
        write_json(report.to_json())
    else:
        from mxrun.report.profile import bench_tables

        write_tables(bench_tables(report.to_json()))


def _names(text: str) -> tuple[str, ...]:
    """Split `torch,mxnet` into names of peers. Raises UserError if a name is empty."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        from mxrun.base.errors import Diagnostic, UserError

        problem = "--against has an empty name of a peer"
        expected = "peers, such as torch or torch,mxnet"
        raise UserError(Diagnostic(problem, expected=expected, got=repr(text)))
    return names


def _pair(text: str) -> tuple[str, str]:
    """Split `peer=path`. Raises UserError for any other form."""
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        from mxrun.base.errors import Diagnostic, UserError

        problem = f"--peer-python {text}: cannot be read as a peer and its Python"
        raise UserError(Diagnostic(problem, expected="PEER=PATH, such as mxnet=env/bin/python"))
    return name, path
