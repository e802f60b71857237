"""`mxrun check-op`."""

from __future__ import annotations

from typing import Annotated

import typer

from mxrun.cli.arguments import Json

# What the user gave, the operator, is not right.
_BROKEN = 2


def check_op(
    operator: Annotated[
        str,
        typer.Argument(
            metavar="OPERATOR", help="An operator's name, or FILE.py:NAME for one of a file."
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Parameters that all cases have, such as no_bias=true."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check that an operator keeps its contract.

    Tries what every operator promises: all write requests, in-place hints, gradients against
    central differences, undeclared inputs, shapes in both directions, repeatability, hidden
    allocations, and all implementations against the readable body. The cases follow from the
    operator's own shapes, parameters and examples. Exit code 2 where a promise is broken.

    \b
    Examples:
      mxrun check-op my_ops.py:my_operator
      mxrun check-op my_ops.py:my_operator scalar=3
      mxrun check-op Convolution kernel=[5,5] no_bias=true
      mxrun check-op softmax --json
    """
    from mxrun.commands import check_op as command
    from mxrun.report.result import write_json, write_tables

    report = command.check_operator(operator, settings or ())
    if json:
        write_json(report)
    else:
        from mxrun.report.contract import contract_parts

        write_tables(contract_parts(report))
    if not report["passed"]:
        raise typer.Exit(_BROKEN)
