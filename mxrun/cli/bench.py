"""`mxrun bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mxrun.cli.arguments import Batch, Config, Json, Overrides, PhaseName, Threads
from mxrun.cli.clock import process_start

Phase = Annotated[PhaseName, typer.Option(help="What a step is: training, or inference.")]
Steps = Annotated[int, typer.Option(min=1, metavar="N", help="Steps that are timed.")]
Warmup = Annotated[int, typer.Option(min=0, metavar="N", help="Steps before, beside the first.")]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the profiled steps for ui.perfetto.dev."),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="PEER,PEER...",
        help="Compare with peers on the same network: torch, torch-compile, mxnet, and for "
        "inference onnxruntime, openvino; such as torch,mxnet.",
        show_default="nobody",
    ),
]
PeerPython = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PEER=PATH", help="The Python that has a peer, where that is not this one."
    ),
]

Remeasure = Annotated[
    bool,
    typer.Option("--remeasure", help="Measure the machine again, whose best figures are kept."),
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

    On made-up records: no data is needed and nothing is saved. Whole steps are timed first; further
    steps, each with a clock beside every call, then say where the time goes. To measure a run on
    its own data, profile it: mxrun train CONFIG --profile.

    Every operator stands against its floor: its operations at the speed of a matrix product or its
    bytes at that of a copy, whichever takes longer. The machine is measured for that once, and with
    --remeasure again.

    With --against, peers run the same network on the same batches in processes of their own, in the
    fastest of their ways, and take turns with mxrun. Each pair of turns gives a ratio: above 1,
    mxrun is faster. First of all losses (inference: outputs) of all are compared.

    \b
    Examples:
      mxrun bench digits_lenet
      mxrun bench net.yaml --phase infer --batch 1 --threads 1
      mxrun bench net.yaml --steps 20 --trace step.json
      mxrun bench net.yaml --against torch,mxnet --peer-python mxnet=env/bin/python
      mxrun bench net.yaml --phase infer --against onnxruntime,openvino
      mxrun bench net.yaml --json
    """
    from mxrun.base.files import check_writable
    from mxrun.commands import bench as command
    from mxrun.config.bundled import find_config
    from mxrun.report.notes import write_note, write_notes
    from mxrun.report.result import write_json, write_tables
    from mxrun.report.trace import write_trace
    from mxrun.session.planning import notes

    started_at = process_start()
    path = find_config(config)
    check_writable(trace)
    write_notes(notes())
    pythons = dict(_pair(text) for text in peer_python or ())
    names = () if against is None else _names(against)
    if pythons and not names:
        from mxrun.base.errors import Diagnostic, UserError

        problem = f"--peer-python says where {', '.join(pythons)} is, and nothing asks for a peer"
        raise UserError(Diagnostic(problem, hint=f"add --against {','.join(pythons)}"))
    request = command.BenchRequest(
        phase.value, batch, threads, steps, warmup, names, pythons, remeasure
    )
    report = command.bench(path, overrides or (), request, write_note, started_at)
    if trace is not None:
        write_trace(trace, report.events())
    if json:
        write_json(report.to_json())
    else:
        from mxrun.report.profile import bench_tables

        write_tables(bench_tables(report.to_json()))


def _names(text: str) -> tuple[str, ...]:
    """The peers of `torch,mxnet`; raises UserError where there is none between two commas."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        from mxrun.base.errors import Diagnostic, UserError

        problem = "--against wants a name on either side of a comma"
        expected = "peers, such as torch or torch,mxnet"
        raise UserError(Diagnostic(problem, expected=expected, got=repr(text)))
    return names


def _pair(text: str) -> tuple[str, str]:
    """`peer=path` in two; raises UserError for anything else."""
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        from mxrun.base.errors import Diagnostic, UserError

        problem = f"--peer-python {text}: names no peer and its Python"
        raise UserError(Diagnostic(problem, expected="PEER=PATH, such as mxnet=env/bin/python"))
    return name, path
