"""Matrix products by cuDNN."""

from __future__ import annotations

from mxrun.base.device import CUDA
from mxrun.operator.register import implement
from mxrun.ops.cudnn import CudnnMatrices
from mxrun.ops.dot.library import LibraryDot


@implement("dot", "batch_dot", backend="cudnn", devices=(CUDA,), before="jit")
class CudnnDot(CudnnMatrices, LibraryDot):
    """cuDNN's matrix products; it has none for stacks of float32 without tensor cores."""


@implement("dot", "batch_dot", backend="cudnn_tf32", devices=(CUDA,))
class RoundedCudnnDot(CudnnDot):
    """Products of float32 by tensor cores, which round factors to 10 bits of fraction."""

    is_by_name = True
    is_tf32 = True
