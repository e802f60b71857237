"""Settings of stochastic gradient descent, alike in every oracle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent as in MXNet 1.9.1.

    g = rescale_grad · gradient + wd · weight; m = momentum · m - lr · g; weight += m. The decay
    `wd` applies to names ending in _weight or _gamma; a variable's `__wd_mult__` and `__lr_mult__`
    override that.
    """

    lr: float
    momentum: float = 0.0
    wd: float = 0.0
    rescale_grad: float = 1.0
