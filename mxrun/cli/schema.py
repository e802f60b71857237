"""`mxrun schema`."""

from __future__ import annotations

from mxrun.cli.registry import COMMANDS


@COMMANDS.register("schema", order=150)
def schema() -> None:
    """Print the JSON Schema of config files, for editors.

    \b
    Example:
      mxrun schema > mxrun.schema.json

    Then begin a config with # yaml-language-server: $schema=mxrun.schema.json
    """
    from mxrun.commands import schema as command
    from mxrun.report.result import write_json

    write_json(command.schema())
