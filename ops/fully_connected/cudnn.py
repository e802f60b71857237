"""FullyConnected by cuDNN, as a convolution with windows of one pixel."""

from __future__ import annotations

from mxrun.base.device import CUDA
from mxrun.operator.register import implement
from mxrun.ops.cudnn import CudnnMatrices
from mxrun.ops.fully_connected.library import LibraryFullyConnected


@implement("FullyConnected", backend="cudnn", devices=(CUDA,), before="jit")
class CudnnFullyConnected(CudnnMatrices, LibraryFullyConnected):
    """cuDNN's matrix products."""


@implement("FullyConnected", backend="cudnn_tf32", devices=(CUDA,))
class RoundedCudnnFullyConnected(CudnnFullyConnected):
    """Products of float32 by tensor cores, which round factors to 10 bits of fraction."""

    is_by_name = True
    is_tf32 = True
