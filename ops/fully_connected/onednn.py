"""FullyConnected by oneDNN: in bfloat16 too, and with packed weights."""

from __future__ import annotations

from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.onednn.descriptor import ANY
from mxrun.operator.register import implement
from mxrun.ops.fully_connected.library import LibraryFullyConnected
from mxrun.ops.onednn import OnednnMatrices


@implement("FullyConnected", backend="onednn")
class OnednnFullyConnected(OnednnMatrices, LibraryFullyConnected):
    """oneDNN's matrix products.

    A packed weight makes a product up to three times faster if there are few rows, but the reorder
    costs more than it saves if the weight changes. The same holds in bfloat16: one plain copy
    serves forward and backward.
    """

    def fixed(self, weight: TensorSpec) -> TensorSpec:
        """Let oneDNN choose the layout."""
        return weight.with_layout(ANY)
