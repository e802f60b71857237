"""Registry of commands: the index says which module to import for one.

A command is registered by its name, that of a command in a group as `GROUP NAME`. Attributes:
`order` is its place among the commands that help lists, by default behind them; `foreign` has what
to write here for names that other programs use, in the form that `folded` returns.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from mxrun.base.registry import Registry

COMMANDS: Registry[Callable[..., None]] = Registry("command")


def names_in(group: str) -> list[str]:
    """Return the names of the commands in a group, in their order; `` is the program itself."""
    order = COMMANDS.attribute("order")
    inside = (name for name in COMMANDS if name.rpartition(" ")[0] == group)
    return sorted(inside, key=lambda name: order.get(name, inf))
