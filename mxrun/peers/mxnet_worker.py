"""MXNet 1.9.1 worker."""

from __future__ import annotations

import mxnet as mx

from mxrun.peers.benchmark_server import BenchmarkServer
from mxrun.peers.mxnet_runner import open_runner

REJECTIONS: tuple[type[Exception], ...] = (mx.MXNetError, ValueError)
HANDLERS = BenchmarkServer(open_runner, mx.__version__).handlers
