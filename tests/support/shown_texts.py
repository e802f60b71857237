"""Texts for users that come from docstrings; run this file to print them."""

from __future__ import annotations

import json
from typing import Any

import typer

from mxrun.cli.command_group import command_of
from mxrun.cli.main import app
from mxrun.cli.registry import COMMANDS
from mxrun.commands.ops import operators
from mxrun.commands.schema import schema
from mxrun.inspection.reference import config_reference
from mxrun.operator.register import list_operators
from mxrun.operator.signature import signature_of


def shown_texts() -> dict[str, Any]:
    """Return helps of commands, the schema, the reference, and documentation of operators."""
    return {
        "mxrun": typer.main.get_command(app).help,
        "commands": {name: command_of(name).help for name in COMMANDS},
        "schema": schema(),
        "reference": {".".join(each.path): each.description for each in config_reference().walk()},
        "ops": operators(),
        "functions": {name: signature_of(name).described() for name in list_operators()},
    }


if __name__ == "__main__":
    print(json.dumps(shown_texts()))
