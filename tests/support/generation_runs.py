"""Networks over token ids: all positions at once, and one position a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest, Prefill
from mxrun.device.interface import Device
from mxrun.executor.executor import Executor
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import EVALUATE, GENERATE, PREFILL
from mxrun.graph.symbol import Symbol, apply, variable
from mxrun.passes.incremental import PRESENT, incremental

Array = npt.NDArray[Any]


def layer(operator: str, name: str, data: Symbol, **parameters: object) -> Symbol:
    """Return the first output of a layer."""
    return apply(operator, {"data": data}, parameters, name)[0]


def embedded(tokens: int, width: int) -> Symbol:
    """Return the embedding of the input `data`."""
    return layer("Embedding", "embed", variable("data"), input_dim=tokens, output_dim=width)


def all_positions(
    symbol: Symbol, ids: Array, device: Device, seed: int = 0
) -> tuple[Array, dict[str, Array]]:
    """Return the only output for ids [batch, positions], and the random parameters by name."""
    inputs = {"data": TensorSpec(ids.shape, "int32")}
    request = CompileRequest(
        inputs, phases=(EVALUATE,), constant_parameters=True, device=device.description
    )
    executor = Executor(compile_plan(symbol, request), device)
    rng = np.random.default_rng(seed)
    parameters = {
        block.name: rng.normal(0, 0.5, executor.plan.specs[block.name].shape).astype(np.float32)
        for block in executor.plan.pinned
        if block.memory_class is MemoryClass.PARAMETERS
    }
    _fill(executor, parameters)
    executor.tensor("data").write(ids)
    executor.run(EVALUATE)
    return executor.result(EVALUATE, symbol.heads[0].name).read(), parameters


def position_by_position(
    symbol: Symbol,
    ids: Array,
    device: Device,
    parameters: Mapping[str, Array],
    chunk: int = 1,
    chunks: int = 0,
) -> tuple[Array, Executor]:
    """Return the output's positions side by side, each from a run of its own.

    Those of the first `chunks` chunks are left out: they are run together.
    """
    shapes = {name: array.shape for name, array in parameters.items()}
    inputs = {"data": TensorSpec(ids.shape, "int32")}
    network = incremental(symbol, inputs, ["data"], shapes, ids.shape[1])
    prefill = incremental(symbol, inputs, ["data"], shapes, ids.shape[1], chunk)
    request = CompileRequest(
        network.inputs,
        prefill=Prefill(prefill.symbol, prefill.inputs) if chunks else None,
        shapes=shapes,
        phases=(GENERATE,),
        constant_parameters=True,
        device=device.description,
    )
    executor = Executor(compile_plan(network.symbol, request), device)
    _fill(executor, parameters)
    found = []

    def load(present: int, count: int) -> None:
        spec = TensorSpec((len(ids), count), "int32")
        data = executor.tensor_at(executor.plan.offset("data"), spec)
        data.write(ids[:, present : present + count])
        if PRESENT in executor.plan.specs:
            executor.tensor(PRESENT).write([present])

    for present in range(0, chunks * chunk, chunk):
        load(present, chunk)
        executor.run(PREFILL)
    for present in range(chunks * chunk, ids.shape[1]):
        load(present, 1)
        executor.run(GENERATE)
        found.append(executor.result(GENERATE, network.symbol.heads[0].name).read())
    return np.concatenate(found, axis=1), executor


def _fill(executor: Executor, parameters: Mapping[str, Array]) -> None:
    executor.device.fill(executor.memory, 0, executor.plan.pinned_bytes, 0)
    for name, array in parameters.items():
        executor.tensor(name).write(array)
    executor.prepare()
