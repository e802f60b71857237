"""Group of commands that suggests a command for an unknown name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperGroup

from mxrun.base.near_names import folded, near_names

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
}


class CommandGroup(TyperGroup):
    """Typer group with its own suggestions; those of Typer compare letters only (export: plot)."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command named by the first argument, or fail with a suggestion."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self.commands:
            ctx.fail(f"No such command {name!r}. {suggestion(name, self.commands)}")
        return super().resolve_command(ctx, args)


def suggestion(name: str, commands: Mapping[str, object]) -> str:
    """Return the suggestion for a command name that does not exist."""
    meant = _ALIASES.get(folded(name))
    near = [meant] if meant is not None else near_names(name, commands)
    if not near:
        return f"Commands: {', '.join(commands)}."
    return f"Did you mean {' or '.join(map(repr, near))}?"
