"""`mxrun bench`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.launcher import become_ranks, launched_ranks
from mxrun.cli.clock import STARTED_AT
from mxrun.cli.registry import COMMANDS
from mxrun.options.bench import BenchOptions


@COMMANDS.register("bench", order=70, foreign={"bench": "benchmark"})
def bench(options: BenchOptions) -> None:
    """Measure a network's steps and operators.

    Uses synthetic data; nothing is saved. Complete steps are timed first. Further steps are then
    profiled: every call is timed, to show where the time goes. To measure a run on its own data,
    use mxrun train CONFIG --profile.

    Every operator is compared with its floor, a lower bound on its time: its operations at the
    speed of a matrix product or its bytes at the speed of a copy, whichever takes longer. The
    speeds of the machine are measured once and cached; --remeasure measures them again.

    With several contexts in the config, training steps run on all of them. If they, or the
    micro-batches that a budget requires, compute parts of batches, the functions of a step are
    shown with the times at which they run.

    With --ranks, mpirun starts so many processes with kvstore=dist_sync. Their messages are timed,
    waits for a late process included, and what is computed meanwhile; the trace has the tracks of
    all of them.

    With --against, peers run the same network on the same batches, each in a process of its own and
    in its fastest mode, alternating with mxrun. Each pair of measurements gives a ratio: above 1,
    mxrun is faster. Before any timing, the losses (inference: outputs) are compared. The peak
    memory of each process is compared too, without the synthetic batches.

    \b
    Examples:
      mxrun bench digits_lenet
      mxrun bench net.yaml --phase infer --batch 1 --threads 1
      mxrun bench net.yaml --steps 20 --trace step.json
      mxrun bench net.yaml --ranks 2 --threads 1 --trace step.json
      mxrun bench net.yaml --against torch,mxnet --peer-python mxnet=env/bin/python
      mxrun bench net.yaml --phase infer --against onnxruntime,openvino
      mxrun bench net.yaml --json
    """
    from mxrun.base.files import check_outputs
    from mxrun.report.notes import write_note
    from mxrun.report.result import write_json, write_tables
    from mxrun.report.status import status
    from mxrun.report.trace import write_trace

    check_outputs({Path(options.config): "CONFIG"}, {"--trace": options.trace})
    pythons = dict(options.peer_python)
    if pythons and not options.against:
        problem = f"--peer-python is given for {', '.join(pythons)}, but no peer is requested"
        raise UserError(Diagnostic(problem, hint=f"add --against {','.join(pythons)}"))
    if options.ranks > 1 and launched_ranks() == 1:
        become_ranks(options.ranks, _words_of_rank(sys.argv[1:]))
    with status(f"measuring {options.config}"):
        from mxrun.commands import bench as command

        report = command.bench(options, write_note, STARTED_AT)
    if report is None:
        return
    if options.trace is not None:
        write_trace(options.trace, report.events())
    if options.json:
        write_json(report.to_json())
    else:
        from mxrun.report.profile import bench_tables

        write_tables(bench_tables(report.to_json()))


def _words_of_rank(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of this command for each of its ranks."""
    rest = iter(words)
    for word in rest:
        if word == "--ranks":
            next(rest)
        elif not word.startswith("--ranks="):
            yield word
    if not any(word.startswith("kvstore=") for word in words):
        yield "kvstore=dist_sync"
