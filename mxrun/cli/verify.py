"""`mxrun verify`."""

from __future__ import annotations

import typer

from mxrun.cli.registry import COMMANDS
from mxrun.options.check import VerifyOptions

# A promise of mxrun is broken.
_BROKEN = 1


@COMMANDS.register("verify", order=120)
def verify(options: VerifyOptions) -> None:
    """Check that all plans of a network give the same bits.

    Trains on synthetic data with the normal plan and with variants of it: without fused operators,
    without tensors that share memory, with freed memory filled with NaN, with gradients made by
    walking the forward pass backwards. The results of all variants are compared, then those of
    inference. One variant frees memory too early, to show that the comparison detects it. Exit
    code 1 if a promise is broken.

    \b
    Examples:
      mxrun verify digits_lenet
      mxrun verify net.yaml --steps 5 --batch 2 --json
    """
    from mxrun.report.status import status

    with status(f"verifying {options.config}"):
        from mxrun.commands import verify as command
        from mxrun.report.notes import write_note
        from mxrun.report.result import write_json, write_tables

        report = command.verify(options, write_note)
    if options.json:
        write_json(report)
    else:
        from mxrun.report.verify import verify_tables

        write_tables(verify_tables(report))
    if not report["passed"]:
        raise typer.Exit(_BROKEN)
