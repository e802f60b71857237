"""Worker of one process of PyTorch's DistributedDataParallel over gloo, for `bench_ranks.py`.

The variables RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say which one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from mxrun.peers.benchmark_server import BenchmarkServer, Runner, Task
from mxrun.peers.pytorch_runner import PyTorchTraining


class ParallelTraining(PyTorchTraining):
    """Runner of the steps of one process, whose gradients are averaged over all."""

    _network: Callable[..., object]

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        distributed.init_process_group("gloo")
        assert isinstance(self._network, MethodType)
        # Its fastest settings: gradients live in the buckets, statistics stay where they are.
        self._network = DistributedDataParallel(
            self._network.__self__, gradient_as_bucket_view=True, broadcast_buffers=False
        )


def open_runner(task: Task) -> Runner:
    """Create the runner of this process; returns when all have."""
    torch.set_num_threads(task.threads)
    return ParallelTraining(task)


REJECTIONS: tuple[type[Exception], ...] = (ValueError, RuntimeError)
HANDLERS = BenchmarkServer(open_runner, torch.__version__).handlers
