"""Source of a native function, from which code is generated for a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mxrun.base.dataclass import dataclass
from mxrun.codegen.map_loop import MapLoop


@dataclass(frozen=True, eq=False)
class FunctionSource:
    """Body of a native function, and what is known when it is compiled.

    arguments: kinds of the arguments by name. constants: values of integers among them that are
    known. is_compact: see `jit.compact`. maps: those that `run_map` runs. The functions that the
    body inlines have its global names; names that are missing there have their values in these
    functions' own files.
    """

    body: Callable[..., Any]
    arguments: Mapping[str, str]
    constants: Mapping[str, int]
    is_compact: bool
    maps: tuple[MapLoop, ...]
