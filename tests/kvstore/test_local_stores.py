"""Stores within one process: sums, asynchrony, order, failures, updates of several devices."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import mxrun
from mxrun.base.context import Context, cpu
from mxrun.base.errors import UserError
from mxrun.kvstore import KVStore
from mxrun.runtime.engine.default import new_engine, using_engine
from mxrun.runtime.engine.failure import JobError
from mxrun.runtime.engine.interface import Pool
from mxrun.runtime.engine.threaded import ThreadedEngine

nd = mxrun.nd
Array = npt.NDArray[Any]
KINDS = ("local", "device")
# Only reached when something hangs.
WATCHDOG_S = 60
# Large enough for a worker.
LARGE = (10_000,)


@pytest.fixture
def engine() -> Iterator[ThreadedEngine]:
    """The engine of the arrays that a test makes."""
    with using_engine(ThreadedEngine()) as made:
        assert isinstance(made, ThreadedEngine)
        yield made
        made.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, engine: ThreadedEngine) -> KVStore:
    return mxrun.kv.create(request.param)


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def hold(engine: ThreadedEngine, array: Any, pool: Pool = Pool.IO) -> threading.Event:
    """Push a function that changes an array and ends when the event is set."""
    event = threading.Event()
    engine.push_sync(
        lambda _: event.wait(WATCHDOG_S), updates=[array.chunk.variable], name="hold", pool=pool
    )
    return event


def test_K1_pushed_gradients_are_added(store: KVStore) -> None:
    gradients = [random(4, 3, seed=seed) for seed in range(2)]
    store.init("weight", nd.zeros((4, 3)))
    store.push("weight", [nd.array(each, ctx=cpu(k)) for k, each in enumerate(gradients)])
    outs = [nd.zeros((4, 3), ctx=cpu(k)) for k in range(2)]
    store.pull("weight", out=outs)
    for out in outs:
        np.testing.assert_array_equal(out.asnumpy(), gradients[0] + gradients[1])


def test_K1_integers_strings_and_lists_are_keys(store: KVStore) -> None:
    store.init([5, 7], [nd.ones((2,)), nd.ones((3,))])
    store.push([5, 7], [[nd.ones((2,)) * 2, nd.ones((2,)) * 3], nd.ones((3,)) * 4])
    small, large = nd.zeros((2,)), nd.zeros((3,))
    store.pull([5, 7], out=[small, large])
    assert small.asnumpy().tolist() == [5, 5]
    assert large.asnumpy().tolist() == [4, 4, 4]
    with pytest.raises(UserError, match="'a' is of another type"):
        store.init("a", nd.ones((2,)))


def test_K1_a_second_init_is_refused_and_changes_nothing(store: KVStore) -> None:
    store.init("a", nd.ones((2,)))
    with pytest.raises(UserError, match="duplicate init of the key 'a'"):
        store.init(["b", "a"], [nd.zeros((2,))] * 2)
    out = nd.zeros((2,))
    store.pull("a", out=out)
    assert out.asnumpy().tolist() == [1, 1]
    store.init("b", nd.ones((2,)))


def test_K1_unknown_keys_and_other_arrays_are_refused(store: KVStore) -> None:
    store.init(3, nd.ones((2,)))
    with pytest.raises(UserError, match="key 4 has not been initialised"):
        store.push(4, nd.ones((2,)))
    with pytest.raises(UserError, match=r"expected: shape \(2,\), float32"):
        store.push(3, nd.ones((3,)))
    with pytest.raises(UserError, match=r"got: shape \(2,\), int32"):
        store.pull(3, out=nd.ones((2,), dtype="int32"))
    with pytest.raises(UserError, match="row_sparse_pull needs arrays of storage type row_sparse"):
        store.row_sparse_pull(3, out=nd.ones((2,)), row_ids=nd.array([0]))
    with pytest.raises(UserError, match="no gradient compression"):
        store.set_gradient_compression({"type": "2bit"})


def test_kinds_that_do_not_exist_are_named() -> None:
    with pytest.raises(UserError, match="updates come in the order in which processes happen to"):
        mxrun.kv.create("dist_async")
    with pytest.raises(UserError, match="did you mean 'local'"):
        mxrun.kv.create("locl")


def test_K1_a_pushed_array_may_change_afterwards(store: KVStore) -> None:
    gradient, out = nd.ones((2,)) * 4, nd.zeros((2,))
    store.init(3, nd.zeros((2,)))
    store.push(3, gradient)
    gradient[:] = 5
    store.pull(3, out=out)
    assert out.asnumpy().tolist() == [4, 4]


def test_push_and_pull_return_before_the_gradient_is_there(
    store: KVStore, engine: ThreadedEngine
) -> None:
    gradient, out = nd.ones((2,)), nd.zeros((2,))
    store.init(3, nd.zeros((2,)))
    event = hold(engine, gradient)
    gradient += 6
    store.push(3, [gradient, gradient])
    store.pull(3, out=out)
    doubled = out * 2
    event.set()
    assert doubled.asnumpy().tolist() == [28, 28]


def test_an_updater_of_a_late_gradient_runs_at_once(store: KVStore, engine: ThreadedEngine) -> None:
    seen = []

    def update(key: int | str, pushed: Any, stored: Any) -> None:
        seen.append(key)
        stored += pushed

    gradient, out = nd.ones((2,)), nd.zeros((2,))
    store.init(3, nd.ones((2,)))
    store.set_updater(update)
    event = hold(engine, gradient)
    store.push(3, [gradient, gradient])
    assert seen == [3]
    store.pull(3, out=out)
    event.set()
    assert out.asnumpy().tolist() == [3, 3]


def test_a_failure_reaches_those_who_pull_and_no_other_key(store: KVStore) -> None:
    gradient, out, other = nd.ones((2,)), nd.zeros((2,)), nd.zeros((2,))
    store.init([3, 4], [nd.ones((2,))] * 2)

    def fail(_: object) -> None:
        raise ValueError("lost")

    gradient.chunk.engine.push_sync(fail, updates=[gradient.chunk.variable], name="load")
    store.push([3, 4], [gradient, nd.ones((2,)) * 7])
    store.pull([3, 4], out=[out, other])
    with pytest.raises(JobError, match="load failed: lost"):
        out.asnumpy()
    assert other.asnumpy().tolist() == [7, 7]
    # A new value makes the key whole again.
    store.push(3, nd.ones((2,)))
    store.pull(3, out=out)
    assert out.asnumpy().tolist() == [1, 1]


def test_an_exception_of_an_updater_is_raised_by_push(store: KVStore) -> None:
    def update(key: int | str, pushed: Any, stored: Any) -> None:
        raise ValueError("no such rule")

    store.init(3, nd.ones((2,)))
    store.set_updater(update)
    with pytest.raises(ValueError, match="no such rule"):
        store.push(3, nd.ones((2,)))


@pytest.mark.parametrize("kind", KINDS)
def test_values_move_between_kinds_of_devices(kind: str) -> None:
    other = Context("reference")
    store, out = mxrun.kv.create(kind), nd.zeros((2,), ctx=other)
    store.init(3, nd.ones((2,)))
    store.push(3, [nd.ones((2,)) * 2, nd.ones((2,), ctx=other) * 3])
    store.pull(3, out=out)
    assert out.asnumpy().tolist() == [5, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_an_array_is_pushed_and_pulled(kind: str) -> None:
    store, both = mxrun.kv.create(kind), nd.array([[1, 2], [3, 4]])
    store.init(3, both[0])
    store.push(3, [both[0], both[1]])
    store.pull(3, out=both[1])
    assert both.asnumpy().tolist() == [[1, 2], [4, 6]]


def optimized(kind: str, on_store: bool, name: str, **parameters: Any) -> list[list[Array]]:
    """Return the weights of both devices after every step.

    On the store the optimizer updates the stored weight, else every device updates its own.
    """
    shapes = {"fc1_weight": (40, 30), "fc1_bias": (40,)}
    store, outs = mxrun.kv.create(kind), {}
    optimizer = mxrun.optimizer.create(name, param_idx2name=dict(enumerate(shapes)), **parameters)
    # Every device has states of its own.
    updates = [mxrun.optimizer.get_updater(optimizer) for _ in range(2)]
    for index, (key, shape) in enumerate(shapes.items()):
        outs[key] = [nd.array(random(*shape, seed=index), ctx=cpu(k)) for k in range(2)]
        store.init(index, outs[key][0])
    if on_store:
        store.set_optimizer(optimizer)
    weights = []
    for step in range(4):
        for index, (key, shape) in enumerate(shapes.items()):
            seeds = range(10 * step, 10 * step + 2)
            grads = [
                nd.array(random(*shape, seed=seed), ctx=cpu(k)) for k, seed in enumerate(seeds)
            ]
            store.push(index, grads)
            if on_store:
                store.pull(index, out=outs[key])
                continue
            store.pull(index, out=grads)
            for update, grad, weight in zip(updates, grads, outs[key], strict=True):
                update(index, grad, weight)
        weights.append([each.asnumpy() for key in shapes for each in outs[key]])
    return weights


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "parameters"),
    [("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.1}), ("adam", {"wd": 0.1})],
)
def test_K2_updates_on_the_store_equal_those_on_the_devices(
    kind: str, name: str, parameters: dict[str, Any]
) -> None:
    on_store, on_devices = (optimized(kind, place, name, **parameters) for place in (True, False))
    np.testing.assert_equal(on_store, on_devices)
    assert not np.array_equal(on_store[0][0], on_store[-1][0])


def trained(store: KVStore, devices: int) -> Array:
    """Return the weight of a linear regression after steps on 64 rows, shared by the devices."""
    data, truth = random(64, 10, seed=1), random(10, 1, seed=2)
    parts = [
        (nd.array(rows, ctx=cpu(k)), nd.array(rows @ truth, ctx=cpu(k)))
        for k, rows in enumerate(np.split(data, devices))
    ]
    weights = [nd.zeros((10, 1), ctx=cpu(k)) for k in range(devices)]
    store.init("weight", weights[0])
    store.set_optimizer(
        mxrun.optimizer.create("sgd", learning_rate=0.1, momentum=0.9, rescale_grad=1 / 64)
    )
    for _ in range(10):
        gradients = []
        for (rows, labels), weight in zip(parts, weights, strict=True):
            gradients.append(nd.dot(rows, nd.dot(rows, weight) - labels, transpose_a=True))
        store.push("weight", gradients)
        store.pull("weight", out=weights)
    values = [weight.asnumpy() for weight in weights]
    for value in values:
        np.testing.assert_array_equal(value, values[0])
    return values[0]


def test_K3_two_devices_of_32_rows_train_like_one_of_64() -> None:
    one = trained(mxrun.kv.create("local"), 1)
    for kind in KINDS:
        np.testing.assert_allclose(trained(mxrun.kv.create(kind), 2), one, rtol=1e-4, atol=1e-5)


def test_K3_results_have_the_same_bits_in_every_repetition() -> None:
    first = trained(mxrun.kv.create("local"), 4)
    for _ in range(5):
        for kind in KINDS:
            np.testing.assert_array_equal(trained(mxrun.kv.create(kind), 4), first)


def test_K3_the_naive_engine_gives_the_same_bits() -> None:
    threaded = trained(mxrun.kv.create("device"), 4)
    with using_engine(new_engine("naive")):
        np.testing.assert_array_equal(trained(mxrun.kv.create("device"), 4), threaded)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_K3_gradients_are_added_in_the_order_of_devices_whatever_is_ready_first(
    store: KVStore, engine: ThreadedEngine, order: tuple[int, ...]
) -> None:
    # In float32 the sum depends on the order: 1 is lost beside 1e8.
    values = [1e8, 1.0, -1e8, 1.0]
    gradients = [nd.array([value], ctx=cpu(k)) for k, value in enumerate(values)]
    events = [hold(engine, each) for each in gradients]
    out = nd.zeros((1,))
    store.init(0, nd.zeros((1,)))
    store.push(0, gradients)
    store.pull(0, out=out)
    for index in order:
        events[index].set()
        if index != order[-1]:
            gradients[index].wait_to_read()
    assert out.asnumpy().tolist() == [1.0]


def test_K4_one_process_is_the_only_worker(store: KVStore) -> None:
    assert (store.rank, store.num_workers) == (0, 1)
    store.barrier()
    assert store.is_capable("optimizer")
    with pytest.raises(UserError, match="unknown capability 'sparsity'"):
        store.is_capable("sparsity")


def test_K4_operations_of_higher_priority_run_first(store: KVStore, engine: ThreadedEngine) -> None:
    priorities = {"low": -2, "middle": 0, "high": 5}
    store.init(list(priorities), [nd.zeros(LARGE)] * 3)
    first = nd.zeros(LARGE)
    store.pull("low", out=first)
    first.wait_to_read()
    names: list[str] = []
    engine.record(lambda event: names.append(event.name))
    # The only worker for communication is busy while all are pushed.
    event = hold(engine, first, Pool.COMMUNICATION)
    for key, priority in priorities.items():
        store.push(key, nd.ones(LARGE), priority=priority)
    outs = {key: nd.zeros(LARGE) for key in priorities}
    for key, priority in priorities.items():
        store.pull(key, out=outs[key], priority=priority)
    event.set()
    engine.wait_for_all()
    engine.record(None)
    pushed = [name for name in names if name.startswith("kvstore push")]
    pulled = [name for name in names if name.startswith("kvstore pull")]
    assert pushed == ["kvstore push high", "kvstore push middle", "kvstore push low"]
    assert pulled == ["kvstore pull high", "kvstore pull middle", "kvstore pull low"]


def test_K5_a_layers_gradients_are_pushed_while_the_layer_before_computes_its_own(
    store: KVStore, engine: ThreadedEngine
) -> None:
    gradients = {name: nd.ones((8,)) for name in ("fc2_weight", "fc1_weight")}
    outs = {name: nd.zeros((8,)) for name in gradients}
    store.init(list(gradients), [nd.zeros((8,))] * 2)
    is_begun, is_pushed = threading.Event(), threading.Event()
    spans: dict[str, tuple[int, int]] = {}

    def sink(event: Any) -> None:
        spans[event.name] = (event.start_ns, event.start_ns + event.duration_ns)
        if event.name == "kvstore push fc2_weight":
            is_pushed.set()

    def backward_fc1(_: object) -> None:
        is_begun.set()
        # It would not end before the watchdog if the push of the other layer came after it.
        assert is_pushed.wait(WATCHDOG_S)

    engine.record(sink)
    for name, function in (("fc2_weight", lambda _: None), ("fc1_weight", backward_fc1)):
        variable = gradients[name].chunk.variable
        engine.push_sync(function, writes=[variable], name=f"backward {name}")
        if name == "fc2_weight":
            # The gradient is ready no earlier than the backward of the layer before it begins.
            engine.push_sync(
                lambda _: is_begun.wait(WATCHDOG_S), updates=[variable], name="ready", pool=Pool.IO
            )
    for priority, name in enumerate(gradients):
        store.push(name, gradients[name], priority=-priority)
        store.pull(name, out=outs[name], priority=-priority)
    engine.wait_for_all()
    engine.record(None)
    begin, end = spans["backward fc1_weight"]
    push_begin, push_end = spans["kvstore push fc2_weight"]
    assert begin < push_begin
    assert push_end < end
    assert spans["kvstore push fc1_weight"][0] >= end


def test_a_stored_array_is_pushed_to_its_own_key_and_pulled_to_itself(store: KVStore) -> None:
    held: list[Any] = []
    store.init("key", nd.ones(LARGE))
    store.set_updater(lambda key, pushed, stored: held.append(stored))
    store.push("key", nd.ones(LARGE))
    # As without an updater.
    store.set_updater(None)  # type: ignore[arg-type]
    store.push("key", [held[0], held[0] * 2, held[0]])
    store.pull("key", out=held[0])
    assert (held[0].asnumpy() == 4).all()


def test_updates_of_other_than_floats_and_other_than_optimizers_are_refused(store: KVStore) -> None:
    with pytest.raises(UserError, match="not an optimizer"):
        store.set_optimizer("sgd")  # type: ignore[arg-type]
    store.set_optimizer(mxrun.optimizer.create("sgd", learning_rate=0.5))
    store.init("ids", nd.ones((2,), dtype="int32"))
    with pytest.raises(UserError, match="update of 'ids'"):
        store.push("ids", nd.ones((2,), dtype="int32"))
    update = mxrun.optimizer.get_updater(mxrun.optimizer.create("adam"))
    with pytest.raises(UserError, match="gradient float64, weight float32"):
        update(0, nd.ones((2,), dtype="float64"), nd.ones((2,)))
