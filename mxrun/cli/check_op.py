"""`mxrun check-op`."""

from __future__ import annotations

import typer

from mxrun.cli.registry import COMMANDS
from mxrun.options.check import CheckOpOptions

# The user's operator is wrong, as any other invalid input.
_BROKEN = 2


@COMMANDS.register("check-op", order=110)
def check_op(options: CheckOpOptions) -> None:
    """Check that an operator keeps its contract.

    Tests the promises of every operator: all write requests, in-place hints, gradients against
    central differences, undeclared inputs, shape inference in both directions, repeatability,
    hidden allocations, and all implementations against the NumPy body. The cases are generated from
    the operator's own shapes, parameters and examples. Exit code 2 if a promise is broken.

    \b
    Examples:
      mxrun check-op my_ops.py:my_operator
      mxrun check-op my_ops.py:my_operator scalar=3
      mxrun check-op Convolution kernel=[5,5] no_bias=true
      mxrun check-op softmax --json
    """
    from mxrun.commands import check_op as command
    from mxrun.report.result import write_json, write_tables

    report = command.check_operator(options.operator, options.settings)
    if options.json:
        write_json(report)
    else:
        from mxrun.report.contract import contract_parts

        write_tables(contract_parts(report))
    if not report["passed"]:
        raise typer.Exit(_BROKEN)
