"""Matrix products by oneDNN."""

from __future__ import annotations

from mxrun.operator.register import implement
from mxrun.ops.dot.library import LibraryDot
from mxrun.ops.onednn import OnednnMatrices


@implement("dot", "batch_dot", backend="onednn")
class OnednnDot(OnednnMatrices, LibraryDot):
    """oneDNN's matrix products."""
