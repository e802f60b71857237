"""Options of `mxrun check`, `mxrun check-op` and `mxrun verify`."""

from typing import Annotated

from mxrun.base.dataclass import dataclass
from mxrun.options.declaration import Option, Positional
from mxrun.options.shared import AllowPlugins, Batch, Config, Json, Overrides, Threads


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of a check of a config."""

    config: Config
    overrides: Overrides = ()
    allow_plugins: AllowPlugins = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class CheckOpOptions:
    """Options of a check of an operator."""

    operator: Annotated[
        str, Positional("Name of an operator, or FILE.py:NAME for one in a file.", "OPERATOR")
    ]
    settings: Annotated[
        tuple[str, ...], Positional("Parameters of all cases, such as no_bias=true.", "KEY=VALUE")
    ] = ()
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Options of a comparison of a network's plans."""

    config: Config
    overrides: Overrides = ()
    steps: Annotated[int, Option("Steps of every variant.", "N", minimum=1)] = 20
    batch: Batch = None
    threads: Threads = None
    json: Json = False
