"""Options that every layer has, beside the parameters of its operator."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass


@dataclass(frozen=True)
class LayerOptions:
    """Kernels, dtype and fusion of a layer.

    implementation, precision: the network's if None. fused: whether the layer may be fused with its
    neighbours.
    """

    implementation: str | None = None
    precision: str | None = None
    fused: bool = True


DEFAULTS = LayerOptions()
"""Options of a layer that sets none."""
