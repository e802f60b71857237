"""Translation of MXNet's operators to PyTorch, one module per operator family.

Every operator has a reference function, written for clarity, not speed: the oracle of the tests.
Gradients come from autograd, except where MXNet's gradient is not the derivative of the output
(SoftmaxOutput). Networks of benchmarks use the library module instead where PyTorch has one, the
form that its kernels are made for; MXNet's `*Output` operators become losses in training.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from mxrun.peers.pytorch.parameters import Losses, Modules, Operators

_FAMILIES = [
    importlib.import_module(f"{__name__}.{module.name}")
    for module in pkgutil.iter_modules(__path__)
]


def _merged(table: str) -> dict[str, Any]:
    """Merge the families' tables of this name."""
    return {
        name: entry for family in _FAMILIES for name, entry in getattr(family, table, {}).items()
    }


OPERATORS: Operators = _merged("OPERATORS")
# Positions of the inputs that an operator writes; MXNet calls them auxiliary states.
AUXILIARY_INPUTS: dict[str, tuple[int, ...]] = _merged("AUXILIARY_INPUTS")
MODULES: Modules = _merged("MODULES")
# Losses for training, and the modules that replace them in inference.
LOSSES: Losses = _merged("LOSSES")
RESULTS: Losses = _merged("RESULTS")
