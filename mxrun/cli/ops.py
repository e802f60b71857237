"""`mxrun ops`."""

from __future__ import annotations

from mxrun.cli.registry import COMMANDS
from mxrun.options.reference import OpsOptions


@COMMANDS.register("ops", order=100, foreign={"ops": "operators list"})
def ops(options: OpsOptions) -> None:
    """List the operators, or describe one.

    The inputs and outputs of an operator depend on its parameters. The description uses the
    parameters given here, and examples of the other required ones.

    \b
    Examples:
      mxrun ops
      mxrun ops Convolution
      mxrun ops Convolution kernel=[5,5] no_bias=true
      mxrun ops SoftmaxOutput --json
      mxrun ops my_ops.py:my_operator
    """
    from mxrun.commands import ops as command
    from mxrun.report.result import write_json, write_tables

    if options.name is None:
        listed = command.operators()
        if options.json:
            write_json(listed)
        else:
            from mxrun.report.operators import operators_table

            write_tables([operators_table(listed)])
        return
    description = command.operator(options.name, options.settings)
    if options.json:
        write_json(description)
    else:
        from mxrun.report.operators import operator_parts

        write_tables(operator_parts(description))
