"""Launches of oneDNN primitives."""

from __future__ import annotations

from collections.abc import Mapping

from mxrun.base.dataclass import dataclass
from mxrun.device.cpu.onednn.backward_convolution import Computation
from mxrun.operator.launch import Handle, ProviderLaunch


@dataclass(frozen=True)
class PrimitiveLaunch(ProviderLaunch):
    """Run of a oneDNN primitive, or of several that replace one.

    places: by argument of the primitive. scratch: None if it needs no scratch space.
    """

    computation: Computation
    places: Mapping[int, Handle]
    scratch: Handle | None
