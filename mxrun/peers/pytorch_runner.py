"""PyTorch runners: eager or compiled, in either layout and precision.

The words of a mode select these. `autocast-bfloat16`: parameters stay float32, and operators that
benefit run in bfloat16; `bfloat16`: the entire module is converted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from mxrun.peers.benchmark_server import InferenceRunner, Runner, Task, TrainingRunner
from mxrun.peers.pytorch.parameters import Tensor
from mxrun.peers.pytorch_network import TorchNetwork, build_network
from mxrun.peers.pytorch_optimizer import build_optimizer, largest_gradient
from mxrun.peers.pytorch_symbol import as_tensors, read_symbol
from mxrun.peers.wire import Array

_IMAGE_RANK = 4


class _Inputs:
    """Batches on the host, and the buffers that each step's batch is copied to."""

    def __init__(self, task: Task) -> None:
        self.batches = {
            name: tensor if tensor.is_floating_point() else tensor.long()
            for name, tensor in as_tensors(task.batches).items()
        }
        if task.device != "cpu":
            # As mxrun's, they are copied to the card in every step.
            self.batches = {name: batch.pin_memory() for name, batch in self.batches.items()}
        self.buffers = [
            torch.zeros_like(batch[0], device=task.device) for batch in self.batches.values()
        ]
        if _has(task, "bfloat16"):
            self.buffers = [b.bfloat16() if b.is_floating_point() else b for b in self.buffers]
        if _has(task, "channels-last"):
            self.buffers = [
                b.to(memory_format=torch.channels_last) if b.dim() == _IMAGE_RANK else b
                for b in self.buffers
            ]
        self._count, self._next = task.steps, 0

    def load(self) -> list[Tensor]:
        """Copy the next batch to the buffers and return them."""
        for buffer, batch in zip(self.buffers, self.batches.values(), strict=True):
            buffer.copy_(batch[self._next], non_blocking=True)
        self._next = (self._next + 1) % self._count
        return self.buffers


def _network(task: Task) -> TorchNetwork:
    variables = {
        name: tensor.to(task.device) for name, tensor in as_tensors(task.variables).items()
    }
    names = tuple(task.batches)
    network = build_network(read_symbol(task.symbol), variables, names, task.updates)
    if _has(task, "channels-last"):
        network.module.to(memory_format=torch.channels_last)
    if _has(task, "bfloat16"):
        network.module.to(torch.bfloat16)
    return network


def _has(task: Task, word: str) -> bool:
    return word in task.mode.split()


def _region(task: Task) -> AbstractContextManager[object]:
    """Return the context for forward: autocast, or none."""
    region: AbstractContextManager[object] = nullcontext()
    if _has(task, "autocast-bfloat16"):
        region = torch.autocast(torch.device(task.device).type, torch.bfloat16)
    return region


def _wait(task: Task) -> Callable[[], None]:
    """Return the function that ends a step: it waits for a card."""
    return (lambda: None) if task.device == "cpu" else torch.cuda.synchronize


class PyTorchTraining(TrainingRunner):
    """Runner of forward, loss, backward and the optimizer's update."""

    def __init__(self, task: Task) -> None:
        self._inputs = _Inputs(task)
        network = _network(task)
        network.module.train()
        self._optimizer = build_optimizer(network.trained, task.updates, task.rate)
        self._trained = list(network.trained.values())
        self._bound, self._max_norm = largest_gradient(task.updates), task.max_norm
        rescale = {rule["parameters"]["rescale_grad"] for rule in task.updates.values()}
        if len(rescale) > 1:
            raise ValueError("different values of rescale_grad are not supported")
        (self._rescale,) = rescale
        # `forward` directly: the traced module's `__call__` adds a wrapper for tracebacks.
        self._network, self._region = network.module.forward, _region(task)
        self._forward, self._wait = self._objective, _wait(task)
        if _has(task, "compile"):
            # On cards with graphs of launches, as mxrun has.
            mode = "default" if task.device == "cpu" else "reduce-overhead"
            self._forward = torch.compile(self._objective, mode=mode)
        self._loss = torch.zeros(())

    def _objective(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        objective, mean = self._network(*inputs)
        return objective * self._rescale, mean

    def step(self) -> None:
        """Run one step."""
        inputs = self._inputs.load()
        self._optimizer.zero_grad(set_to_none=True)
        with self._region:
            objective, self._loss = self._forward(*inputs)
        objective.backward()
        if self._max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._trained, self._max_norm)
        if self._bound is not None:
            torch.nn.utils.clip_grad_value_(self._trained, self._bound)
        self._optimizer.step()
        self._wait()

    def loss(self) -> float:
        """Return the last step's loss."""
        return float(self._loss)


class PyTorchInference(InferenceRunner):
    """Runner of forward alone."""

    def __init__(self, task: Task) -> None:
        self._inputs, self._region = _Inputs(task), _region(task)
        network = _network(task).module
        network.eval()
        self._forward = network.forward
        if _has(task, "compile"):
            self._forward = torch.compile(network, options={"freezing": True})
        if _has(task, "frozen"):
            traced = torch.jit.trace(network, tuple(self._inputs.buffers))
            self._forward = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
        self._outputs: tuple[Tensor, ...] = ()
        self._wait = _wait(task)

    def step(self) -> None:
        """Run one step."""
        inputs = self._inputs.load()
        # no_grad, because the compiler's freezing does not support inference_mode.
        with torch.no_grad(), self._region:
            self._outputs = self._forward(*inputs)
        self._wait()

    def outputs(self) -> list[Array]:
        """Return the last step's outputs."""
        return [output.detach().float().contiguous().cpu().numpy() for output in self._outputs]


def open_runner(task: Task) -> Runner:
    """Create the runner of a task; raises ValueError for unsupported operators."""
    torch.set_num_threads(task.threads)
    if task.device != "cpu":
        # float32 without tensor cores, as mxrun's.
        torch.backends.cudnn.allow_tf32 = False
        # Of tensors that operators make.
        torch.set_default_device(task.device)
    return PyTorchTraining(task) if task.phase == "train" else PyTorchInference(task)
