"""Config files: from YAML text to a frozen, validated RunConfig with source locations."""

from mxrun.config.choice import Choice
from mxrun.config.data import Data, DatasetSection, WindowSection
from mxrun.config.expand import removal_hint
from mxrun.config.json_schema import json_schema
from mxrun.config.layers import LayerConfig
from mxrun.config.marked import SourceNode
from mxrun.config.names import Names
from mxrun.config.parse import ConfigSource, Parsed, load_config, parse
from mxrun.config.recurrent import RecurrentConfig
from mxrun.config.run_config import RunConfig, RunOptions
from mxrun.config.schema import NetworkSection, VariableSection
from mxrun.config.sources import COMMAND_LINE, PATHLESS, Overrides, overridden
from mxrun.config.training import StartFrom, Train

__all__ = [
    "COMMAND_LINE",
    "PATHLESS",
    "Choice",
    "ConfigSource",
    "Data",
    "DatasetSection",
    "LayerConfig",
    "Names",
    "NetworkSection",
    "Overrides",
    "Parsed",
    "RecurrentConfig",
    "RunConfig",
    "RunOptions",
    "SourceNode",
    "StartFrom",
    "Train",
    "VariableSection",
    "WindowSection",
    "json_schema",
    "load_config",
    "overridden",
    "parse",
    "removal_hint",
]
