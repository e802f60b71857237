"""Storage of arrays: balance over steps, poisoned blocks, the cap."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from typing import Any

import pytest
from memory_in_use import settle

import mxrun as mx
from mxrun.base.context import Context, cpu
from mxrun.base.errors import UserError
from mxrun.device.storage import storage_pools
from mxrun.runtime.storage import StoragePool

MIB = 1 << 20

# Trains a perceptron and reports its weights and the pool's state after steps; on a context of its
# own, whose pool nothing else uses.
TRAINING = """
import gc, hashlib, json
import mxrun as mx
from mxrun.device.storage import storage_pools

context = mx.cpu(1)
nd, autograd = mx.nd, mx.autograd
pool = storage_pools().of(context)

def main():
    mx.random.seed(1)
    first = nd.random.normal(0, 0.3, shape=(16, 8), ctx=context)
    last = nd.random.normal(0, 0.3, shape=(4, 16), ctx=context)
    data = nd.random.normal(0, 1, shape=(32, 8), ctx=context)
    label = nd.zeros((32,), ctx=context)
    for weight in (first, last):
        weight.attach_grad()
    found = {}
    for step in range(1, STEPS + 1):
        with autograd.record():
            hidden = nd.FullyConnected(data, first, num_hidden=16, no_bias=True)
            hidden = nd.Dropout(nd.relu(hidden), p=0.25)
            output = nd.FullyConnected(hidden, last, num_hidden=4, no_bias=True)
            loss = nd.SoftmaxOutput(output, label)
        loss.backward()
        for weight in (first, last):
            weight -= 0.01 * weight.grad
        del hidden, output, loss
        # Functions that are pending hold memory, the more of them the further the loop is ahead.
        nd.waitall()
        if step in (10, STEPS):
            gc.collect()
            found[step] = vars(pool.statistics())
    digest = hashlib.sha256(first.asnumpy().tobytes() + last.asnumpy().tobytes())
    return digest.hexdigest(), found

digest, found = main()
print(json.dumps([digest, list(found.values())]))
"""


def training(steps: int, debug: str) -> tuple[str, list[dict[str, int]], str]:
    """Return the weights' digest, the pool's statistics at two steps, and standard error."""
    done = subprocess.run(
        [sys.executable, "-c", TRAINING.replace("STEPS", str(steps))],
        env={**os.environ, "MXRUN_DEBUG": debug},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    digest, found = json.loads(done.stdout)
    return digest, found, done.stderr


def test_S2_bytes_in_use_after_step_10_are_those_after_step_1000() -> None:
    _, (early, late), errors = training(1000, "1")
    for name in ("bytes_in_use", "blocks_in_use", "bytes_reserved", "system_allocations"):
        assert early[name] == late[name] > 0, name
    # Blocks in use at exit would be reported.
    assert not errors


@pytest.mark.full
@pytest.mark.commands
def test_S4_poisoned_blocks_change_no_result() -> None:
    poisoned, *_ = training(30, "1")
    plain, *_ = training(30, "0")
    assert poisoned == plain


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the pool of a context that no other test uses, without a cap afterwards."""
    found: StoragePool = storage_pools().of(cpu(7))
    settle()
    found.trim()
    monkeypatch.setattr(found, "cap", 4 * MIB)
    yield found
    settle()


@pytest.mark.full
def test_S3_an_array_above_the_cap_is_refused_where_it_is_made(pool: StoragePool) -> None:
    context = Context("cpu", 7)
    first = mx.nd.ones((256, 1024), ctx=context)
    expected = r"out of memory on cpu:7: 4,194,304 bytes are requested"
    with pytest.raises(UserError, match=expected) as caught:
        mx.nd.zeros((1024, 1024), ctx=context)
    assert "1,048,576 bytes in use" in str(caught.value)
    # An operator's output is refused by the call, and computing goes on.
    with pytest.raises(UserError, match="out of memory on cpu:7"):
        mx.nd.dot(first, first, transpose_a=True)
    assert (first + first).asnumpy().sum() == 2 * 256 * 1024
    assert pool.statistics().bytes_reserved <= 4 * MIB


@pytest.mark.full
def test_S1_an_equal_array_takes_the_memory_of_the_last_one(pool: StoragePool) -> None:
    context = Context("cpu", 7)

    def step() -> None:
        made = mx.nd.ones((1000,), ctx=context)
        (made * made + made).asnumpy()

    for _ in range(2):
        step()
    mx.nd.waitall()
    before = pool.statistics()
    for _ in range(20):
        step()
    mx.nd.waitall()
    after = pool.statistics()
    assert after.system_allocations == before.system_allocations
    assert after.requests_from_pool > before.requests_from_pool
    assert after.bytes_in_use == before.bytes_in_use


@pytest.mark.full
def test_memory_is_freed_after_the_functions_that_use_it(pool: StoragePool) -> None:
    """Also if the last reference to the array is gone before they run."""
    before = pool.statistics().bytes_in_use
    array = mx.nd.ones((1000,), ctx=Context("cpu", 7))
    mx.nd.waitall()
    begun, gate, found = threading.Event(), threading.Event(), []
    block, engine = array.chunk.block, array.chunk.engine

    def use(_: object) -> None:
        begun.set()
        gate.wait()
        found.append((block.is_free, pool.statistics().bytes_in_use))

    engine.push_sync(use, updates=(array.chunk.variable,), context=Context("cpu", 7))
    begun.wait()
    later = array + 1
    del array
    gc.collect()
    assert not block.is_free
    gate.set()
    assert (later.asnumpy() == 2).all()
    del later
    # The engine forgets a complete function under the lock that this takes.
    mx.nd.waitall()
    assert found == [(False, before + 2 * block.capacity)]
    assert block.is_free
