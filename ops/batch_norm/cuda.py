"""BatchNorm on GPUs: the loops of the CPU as block kernels."""

from __future__ import annotations

from collections.abc import Mapping

from mxrun.base.device import CUDA
from mxrun.codegen.jit import NativeFunction
from mxrun.operator.native_kernel import KernelPart, LoopPart
from mxrun.operator.register import implement
from mxrun.ops.batch_norm import blocks, channels, loops
from mxrun.ops.batch_norm.channels import ChannelSums
from mxrun.ops.batch_norm.kernels import CompiledBatchNorm, Loops
from mxrun.ops.batch_norm.loops import Sampling
from mxrun.ops.batch_norm.walk import Walk

_BLOCKS: Mapping[NativeFunction, NativeFunction] = {
    loops.shift_loop: blocks.shift_block,
    loops.shift_loop.bfloat16: blocks.shift_block.bfloat16,
    loops.statistics_loop: blocks.statistics_block,
    loops.normalize_loop: blocks.normalize_block,
    loops.gradient_sums_loop: blocks.gradient_sums_block,
    loops.data_gradient_loop: blocks.data_gradient_block,
    channels.scale_loop: blocks.scale_block,
    channels.gradient_scale_loop: blocks.gradient_scale_block,
}


class BlockLoops(Loops):
    """Builder of the parts on a GPU, where a thread needs no arrays."""

    def alone(self, loop: NativeFunction, arguments: ChannelSums | Sampling) -> KernelPart:
        """Return a kernel whose threads have a channel each."""
        tasks = -(-self.pieces.channels // blocks.THREADS)
        return LoopPart(_BLOCKS[loop], arguments, tasks, self.scratch_bytes)

    def together(self, loop: NativeFunction, arguments: Walk) -> KernelPart:
        """Return a kernel whose blocks have a piece each."""
        kernel = self.of(_BLOCKS[loop])
        return LoopPart(kernel, arguments, self.pieces.count, self.scratch_bytes)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the arrays [C], the partial sums and their totals."""
        return self.blocks.offset


@implement("BatchNorm", "_batch_norm_limited", backend="blocks", devices=(CUDA,), before="jit")
class BlockBatchNorm(CompiledBatchNorm):
    """Block kernels with the bits of the CPU's loops, which keep their sums in its cache."""

    loops = BlockLoops
