"""Groups of commands: suggestions for unknown names, and usage errors as JSON with --json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from mxrun.base.near_names import folded, near_names
from mxrun.cli import json_errors

# UsageError of click, which some versions of Typer contain and others import.
_USAGE_ERROR: type[Any] = typer.BadParameter.__bases__[0]
# Names of these commands in other programs, in the form that `folded` returns.
_ALIASES: Mapping[str, str] = {
    "export": "convert",
    "save": "convert",
    "new": "init",
    "create": "init",
    "fit": "train",
    "resume": "train CONFIG --resume",
    "predict": "infer",
    "run": "infer",
    "eval": "evaluate",
    "test": "evaluate",
    "score": "evaluate",
    "metrics": "evaluate",
    "confusion": "evaluate",
    "benchmark": "bench",
    "profile": "train CONFIG --profile",
    "validate": "check",
    "lint": "check",
    "summary": "check",
    "memory": "inspect-memory",
    "draw": "plot",
    "visualize": "plot",
    "generate": "infer",
    "sample": "infer",
    "chat": "infer",
    "finetune": "train",
    "configs": "show",
    "examples": "show",
    "explain": "help",
    "reference": "help",
    "man": "help",
    "operators": "ops",
    "version": "info",
    "doctor": "info",
    "cache": "info",
    "env": "info",
    "list": "ops",
    "jobs": "engine",
    "dag": "engine",
    "make": "engine",
    "download": "datasets fetch",
    "data": "datasets",
    "im2rec": "pack",
    "shard": "pack",
    "recordio": "pack",
}


class SuggestingGroup(TyperGroup):
    """Typer group with its own suggestions; those of Typer compare letters only (export: plot)."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command named by the first argument, or fail with a suggestion."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self.commands:
            ctx.fail(f"No such command {name!r}. {suggestion(name, self.commands)}")
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


def suggestion(name: str, commands: Mapping[str, object]) -> str:
    """Return the suggestion for a command name that does not exist."""
    meant = _ALIASES.get(folded(name), "")
    # `download` is `datasets fetch`, and within `datasets` it is `fetch`.
    known = [each for each in (meant, meant.split(" ")[-1]) if each.split(" ")[0] in commands]
    near = known[:1] or near_names(name, commands)
    if not near:
        return f"Commands: {', '.join(commands)}."
    return f"Did you mean {' or '.join(map(repr, near))}?"
