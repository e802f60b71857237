"""mxrun.sym: symbols and executors with MXNet's names.

Every registered operator is a function here, such as `mxrun.sym.Convolution`, a plugin's as soon as
the plugin is loaded; `list_operators()` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mxrun.base.errors import UserError
from mxrun.graph.attributes import AttrScope
from mxrun.graph.naming_scopes import NameManager, Prefix
from mxrun.imperative.calls.functions import public_names
from mxrun.imperative.symbolic.creation import Group, Variable, load, var
from mxrun.imperative.symbolic.creator import OperatorCreator
from mxrun.imperative.symbolic.executor import Executor
from mxrun.imperative.symbolic.functions import operator_function
from mxrun.imperative.symbolic.numbers import hypot, maximum, minimum, pow, power
from mxrun.imperative.symbolic.symbol import Symbol, load_json
from mxrun.operator.register import list_operators
from mxrun.operator.signature import OperatorSignature, signature_of

__all__ = [
    "AttrScope",
    "Executor",
    "Group",
    "NameManager",
    "Operator",
    "Prefix",
    "Symbol",
    "Variable",
    "describe_operator",
    "hypot",
    "list_operators",
    "load",
    "load_json",
    "maximum",
    "minimum",
    "pow",
    "power",
    "var",
]

Operator = OperatorCreator


def describe_operator(name: str) -> OperatorSignature:
    """Return an operator's tensors, parameters and documentation, by name or alias.

    Raises UserError for an unknown name, naming the nearest.
    """
    return signature_of(name)


def __getattr__(name: str) -> Callable[..., Any]:
    try:
        return operator_function(name)
    except UserError as error:
        # AttributeError for `hasattr`.
        raise AttributeError(f"module 'mxrun.sym' has no attribute {name!r}: {error}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *public_names()})
