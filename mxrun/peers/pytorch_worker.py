"""PyTorch worker."""

from __future__ import annotations

import torch

from mxrun.peers.benchmark_server import BenchmarkServer
from mxrun.peers.pytorch_runner import open_runner

# PyTorch reports mismatched shapes and types as RuntimeError.
REJECTIONS: tuple[type[Exception], ...] = (ValueError, RuntimeError)
HANDLERS = BenchmarkServer(open_runner, torch.__version__).handlers
