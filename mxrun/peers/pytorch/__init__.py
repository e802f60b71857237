"""MXNet's operators in PyTorch, as a reference for tests: written for clarity, not speed.

One module per operator family. Every entry of its `OPERATORS` takes the operator's MXNet parameters
as text and its tensors in MXNet's argument order, and returns the output, or several. Gradients
come from autograd, except where MXNet's gradient is not the derivative of its output
(SoftmaxOutput). `AUXILIARY_INPUTS` gives the inputs that an operator writes; MXNet calls them
auxiliary states.
"""

from __future__ import annotations

import importlib
import pkgutil

from mxrun.peers.pytorch.parameters import Operators

_FAMILIES = [
    importlib.import_module(f"{__name__}.{module.name}")
    for module in pkgutil.iter_modules(__path__)
]
OPERATORS: Operators = {
    name: operator
    for family in _FAMILIES
    for name, operator in getattr(family, "OPERATORS", {}).items()
}
AUXILIARY_INPUTS: dict[str, tuple[int, ...]] = {
    name: inputs
    for family in _FAMILIES
    for name, inputs in getattr(family, "AUXILIARY_INPUTS", {}).items()
}
