"""Groups of commands: their commands from the registry, suggestions for unknown names, and usage
errors as JSON with --json.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from mxrun.base.docstrings import docstring
from mxrun.base.near_names import folded, near_names
from mxrun.cli import json_errors
from mxrun.cli.parameters import as_command
from mxrun.cli.registry import COMMANDS, names_in

# UsageError of click, which some versions of Typer contain and others import.
_USAGE_ERROR: type[Any] = typer.BadParameter.__bases__[0]


class SuggestingGroup(TyperGroup):
    """Typer group of the commands that are registered in it; each is imported when it is looked up.

    It has its own suggestions; those of Typer compare letters only (export: plot).
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return [name.rpartition(" ")[2] for name in names_in(_group(ctx))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; None for an unknown name."""
        name = f"{_group(ctx)} {cmd_name}".lstrip()
        return command_of(name) if name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command named by the first argument, or fail with a suggestion."""
        name, known = args[0] if args else "", self.list_commands(ctx)
        if name and not name.startswith("-") and name not in known:
            ctx.fail(f"No such command {name!r}. {suggestion(name, known)}")
        return super().resolve_command(ctx, args)


class CommandGroup(SuggestingGroup):
    """Group of all commands. With --json, usage errors are also written to standard output as JSON,
    those of a group within it too.
    """

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        """Return the context of a command line."""
        wants_json = json_errors.is_requested(args)
        with _usage_errors(wants_json):
            context = super().make_context(info_name, args, *more, **extra)
        context.meta[__name__] = wants_json
        return context

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _usage_errors(ctx.meta[__name__]):
            return super().invoke(ctx)


@contextmanager
def _usage_errors(wants_json: bool) -> Iterator[None]:
    """Context manager that writes usage errors as JSON if that is requested, and raises them."""
    try:
        yield
    except _USAGE_ERROR as error:
        # Typer validates by pydantic, whose prefix is no word for users.
        error.message = error.message.replace("Value error, ", "")
        if hasattr(error, "possibilities"):
            _advise(error)
        if wants_json:
            command = "mxrun" if error.ctx is None else error.ctx.command_path
            json_errors.write_usage_error(error.format_message(), command, error.exit_code)
        raise


def _advise(error: Any) -> None:
    """Replace Typer's suggestions for an unknown option, which compare letters only (lr: runs)."""
    from mxrun.commands.help import setting_hint

    parameters = [] if error.ctx is None else error.ctx.command.params
    options = [option for each in parameters for option in each.opts if option.startswith("--")]
    error.possibilities = near_names(error.option_name, options)
    takes_keys = any(each.name == "overrides" for each in parameters)
    if not error.possibilities and takes_keys:
        error.message += setting_hint(error.option_name)


def _group(context: Any) -> str:
    """Return the name of the group whose context is given; empty for the program itself."""
    return "" if context.parent is None else str(context.info_name)


def command_of(name: str) -> Any:
    """Import a registered command, and return it for Typer: a group if others are in it."""
    function, is_group = COMMANDS.get(name), bool(names_in(name))
    app = typer.Typer(
        cls=SuggestingGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None
    )
    if is_group:
        app.callback(help=docstring(function))(function)
    else:
        app.command(name.rpartition(" ")[2], help=docstring(function))(as_command(function))
    return typer.main.get_command(app)


def suggestion(name: str, commands: Collection[str]) -> str:
    """Return the suggestion for a command name that does not exist."""
    meant = COMMANDS.foreign().get(folded(name), "")
    # `download` is `datasets fetch`, and within `datasets` it is `fetch`.
    known = [each for each in (meant, meant.split(" ")[-1]) if each.split(" ")[0] in commands]
    near = known[:1] or near_names(name, commands)
    if not near:
        return f"Commands: {', '.join(commands)}."
    return f"Did you mean {' or '.join(map(repr, near))}?"
