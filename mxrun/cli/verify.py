"""`mxrun verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from mxrun.cli.arguments import Batch, Config, Json, Overrides, Threads

# A promise of ours that does not hold.
_BROKEN = 1


def verify(
    config: Config,
    overrides: Overrides = None,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps in every way.")] = 20,
    batch: Batch = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Check that a network trains to the same bits however it is planned.

    Trains on made-up records, as planned and in other ways: without fused operators, without
    tensors that share memory, with memory poisoned as soon as it is free, with gradients made by
    walking backwards. What each way leads to is compared, and inference likewise. One way frees
    memory too early, to show that this would be seen. Exit code 1 where a promise is broken.

    \b
    Examples:
      mxrun verify digits_lenet
      mxrun verify net.yaml --steps 5 --batch 2 --json
    """
    from mxrun.commands import verify as command
    from mxrun.config.bundled import find_config
    from mxrun.report.notes import write_note
    from mxrun.report.result import write_json, write_tables

    report = command.verify(find_config(config), overrides or (), steps, batch, threads, write_note)
    if json:
        write_json(report)
    else:
        from mxrun.report.verify import verify_tables

        write_tables(verify_tables(report))
    if not report["passed"]:
        raise typer.Exit(_BROKEN)
