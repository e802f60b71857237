"""Config files: YAML text to a frozen, validated RunConfig that knows where everything stands."""

from mxrun.config.choice import Choice
from mxrun.config.json_schema import json_schema
from mxrun.config.layers import LayerConfig
from mxrun.config.marked import Marked
from mxrun.config.names import Names
from mxrun.config.parse import Parsed, RunConfig, load_config, parse
from mxrun.config.schema import Data, Dataset, Network, Variable
from mxrun.config.training import StartFrom, Train

__all__ = [
    "Choice",
    "Data",
    "Dataset",
    "LayerConfig",
    "Marked",
    "Names",
    "Network",
    "Parsed",
    "RunConfig",
    "StartFrom",
    "Train",
    "Variable",
    "json_schema",
    "load_config",
    "parse",
]
