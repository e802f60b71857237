"""Padded rows of the last batch affect no gradient, loss or metric, whatever they contain."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from bundled_runs import BUNDLED, bundled, executor_of
from training import prepare

from mxrun.executor.executor import Executor
from mxrun.executor.side_program import BatchTensors
from mxrun.frontend import ModelDefinition
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.io.dataset.request import open_datasets
from mxrun.io.loading.open import open_iterator
from mxrun.train.host_arrays import slots
from mxrun.train.metric_kind import METRICS, Metrics

BATCH, VALID, COUNT = 64, 40, 1000
DATA = f"data.train={{dataset: synthetic, split: train, records: {COUNT}, shuffle: true}}"

Batch = dict[str, npt.NDArray[Any]]


def last_batch(built: ModelDefinition) -> Batch:
    """The last batch of an epoch as the iterator gives it: 40 records and 24 rows of padding."""
    dataset = open_datasets(built.data, built.model.records)["train"]
    iterator = open_iterator(dataset, BATCH, shuffle=True, seed=3)
    iterator.reset(2)
    places = {name: np.zeros(spec.shape, spec.dtype) for name, spec in built.model.inputs.items()}
    rows: list[int] = []
    for _ in range(iterator.batches(2)):
        batch = iterator.next_into(places)
        assert batch is not None
        rows += batch.indices[: batch.valid].tolist()
    assert iterator.next_into(places) is None
    assert (batch.valid, batch.pad) == (VALID, BATCH - VALID)
    assert sorted(rows) == list(range(COUNT))
    return places


def load(executor: Executor, batch: Batch, rows: int) -> None:
    for name, array in batch.items():
        executor.tensor(name).write(array[:rows])


@pytest.mark.parametrize("config", BUNDLED)
def test_D1_the_last_batchs_gradients_are_those_of_forty_rows(config: str) -> None:
    """Padding contains garbage, including labels outside the classes.

    The gradient of a weight sums up to 36,864 products, in an order that depends on the batch size.
    """
    built = bundled(config, DATA, batch=BATCH)
    short = bundled(config, DATA, batch=VALID)
    batch = last_batch(built)
    assert batch["sample_weight"].tolist() == [1.0] * VALID + [0.0] * (BATCH - VALID)
    padded, real = executor_of(built, gradients=True), executor_of(short, gradients=True)
    load(real, batch, VALID)
    batch["data"][VALID:] = np.random.default_rng(0).normal(0, 100, batch["data"][VALID:].shape)
    batch["label"][VALID:] = 1 << 20
    load(padded, batch, BATCH)
    for phase in (EVALUATE, TRAIN):
        padded.run(phase)
        real.run(phase)
        loss = built.model.losses[0]
        both = [executor.result(phase, loss.loss).values()[0] for executor in (padded, real)]
        np.testing.assert_allclose(*both, rtol=1e-6)
        outputs = [
            executor.result(phase, loss.output).values()[:VALID] for executor in (padded, real)
        ]
        np.testing.assert_allclose(*outputs, rtol=1e-5, atol=1e-7)
    for name in built.model.parameters:
        got, want = (e.result(TRAIN, f"{name}_grad").read() for e in (padded, real))
        assert np.abs(want).max() > 0
        assert np.abs(got - want).max() <= 5e-6 * np.abs(want).max(), name


@pytest.mark.parametrize("config", BUNDLED)
def test_D1_padding_moves_no_parameter(config: str) -> None:
    """The same 40 records with two different paddings give the same bytes of the state."""
    built = bundled(config, DATA, batch=BATCH)
    batch = last_batch(built)
    after = []
    for scale in (1, 1000):
        executor = executor_of(built)
        padding = batch["data"][VALID:]
        padding[...] = np.random.default_rng(scale).normal(0, scale, padding.shape)
        batch["label"][VALID:] = scale % 7
        load(executor, batch, BATCH)
        before = {name: executor.tensor(name).values().tobytes() for name in built.model.parameters}
        executor.run(TRAIN)
        states = [b.name for b in executor.plan.pinned if b.name not in built.model.inputs]
        after.append({name: executor.tensor(name).values().tobytes() for name in states})
        assert all(after[-1][name] != content for name, content in before.items())
    assert after[0] == after[1]


@pytest.mark.parametrize("name", ["accuracy", "top_k", "cross_entropy", "perplexity"])
def test_D1_metrics_are_those_of_forty_rows(name: str) -> None:
    built = bundled("digits_lenet", DATA)
    batch = last_batch(built)
    batch["data"][VALID:] = 77
    batch["label"][VALID:] = 9
    short = bundled("digits_lenet", DATA, batch=VALID)
    found = []
    for size, rows in ((built, BATCH), (short, VALID)):
        executor = executor_of(size, gradients=True)
        load(executor, batch, rows)
        executor.run(EVALUATE)
        loss = size.model.losses[0]
        metrics = Metrics([METRICS.get(name)()], loss.task, rows)
        output = executor.result(EVALUATE, loss.output)
        weight = executor.tensor("sample_weight")
        metrics.updater(BatchTensors(executor.tensor("label"), output, weight))()
        (metric,) = metrics.by_figure.values()
        found.append(metric.value())
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    assert found[0] > 0


def test_D1_every_record_is_measured_once() -> None:
    """Evaluations in batches of 64, of 7, and of all 100 records agree."""
    losses = []
    for size in (64, 7, 100):
        built = bundled("digits_lenet", DATA, batch=size)
        run = prepare(built)
        iterator = run.iterators["eval"]
        iterator.reset(0)
        places = slots(run.executor, iterator).arrays
        loss, samples = 0.0, 0
        while (batch := iterator.next_into(places)) is not None:
            run.executor.run(EVALUATE)
            loss += run.executor.result(EVALUATE, built.model.losses[0].loss).values().item()
            samples += batch.valid
        assert samples == 100
        losses.append(loss / samples)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] == pytest.approx(losses[2], rel=1e-5)
