"""Gradients are means over the records of an update, also where batches are short."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from oracles.peer import MXNet, PyTorch
from peer_scripts import run_in
from PIL import Image
from refusals import only_problem
from training import prepare

from mxrun.device.cpu.pool import available_cores
from mxrun.frontend import ModelDefinition
from mxrun.graph.update_rule import GRADIENT_SCALE
from mxrun.preparation.planning import load
from mxrun.run.run import Run
from mxrun.train.replay import NullCheckpointing, NullObserver

Array = npt.NDArray[Any]

CONFIG = """\
name: net
threads: 1
network:
  inputs: {data: [3], label: []}
  layers:
    - FullyConnected: {name: fc, num_hidden: 4, no_bias: true}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 8
  train: {dataset: npz, path: a.npz}
train:
  epochs: 3
  initializer: {constant: {value: 0.1}}
  optimizer: {sgd: {lr: 0.5, momentum: 0.9}}
  metrics: []
"""
BATCH, EPOCHS, RATE, MOMENTUM = 8, 3, 0.5, 0.9
two_cores = pytest.mark.skipif(available_cores() < 2, reason="two CPU contexts need two cores")


def records() -> tuple[Array, Array]:
    draw = np.random.default_rng(3)
    labels = draw.integers(0, 4, 30)
    # A batch, and the part of it that a second context gets, without any label that counts.
    labels[12:16] = 0
    return draw.normal(size=(30, 3)).astype("f4"), labels.astype("i4")


@pytest.fixture(autouse=True)
def _folder(empty_folder: Path) -> None:
    """Write all files to an empty folder."""


def written(count: int) -> None:
    data, label = records()
    np.savez("a.npz", data=data[:count], label=label[:count])
    Path("net.yaml").write_text(CONFIG)


def defined(count: int, *overrides: str) -> ModelDefinition:
    written(count)
    return load("net.yaml", overrides)


def trained(built: ModelDefinition, *names: str) -> list[Array]:
    """Return tensors after training, by default the weight."""
    run = prepare(built)
    try:
        run.initialise()
        run.loop(NullObserver()).run(NullCheckpointing(), lambda: False)
        return [run.executor.tensor(name).values() for name in names or ("fc_weight",)]
    finally:
        run.close()


def gradients(weight: Array, rows: slice, ignored: int | None = None) -> tuple[Array, int]:
    """Return the sum of the gradients of rows in float64, and the number of labels that count."""
    data, labels = records()
    x, y = data[rows].astype("f8"), labels[rows]
    p = np.exp(x @ weight.T)
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    p[y == ignored] = 0
    return p.T @ x, int((y != ignored).sum())


def batches_of(count: int, size: int = BATCH) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def expected(epochs: Sequence[Sequence[Any]], clip: float | None = None) -> Array:
    """Return the weight after updates in float64.

    epochs: for each, a function of the weight for each update, which returns its gradient.
    """
    weight, velocity = np.full((4, 3), 0.1), np.zeros((4, 3))
    for updates in epochs:
        for gradient in updates:
            grad = gradient(weight)
            if clip is not None:
                grad = grad * min(1, clip / np.linalg.norm(grad))
            velocity = MOMENTUM * velocity - RATE * grad
            weight = weight + velocity
    return weight


def divided(rows: slice, divisor: float | None = None) -> Any:
    """Return the gradient of rows as a function of the weight; by default the mean."""
    return lambda weight: gradients(weight, rows)[0] / (divisor or rows.stop - rows.start)


def means(count: int, size: int = BATCH) -> list[list[Any]]:
    return [[divided(rows) for rows in batches_of(count, size)]] * EPOCHS


TWO = "context=[cpu:0, cpu:1]"
CLIP = "train.optimizer.sgd.clip_global_norm=0.2"
CASES: dict[str, tuple[int, tuple[str, ...], int, float | None]] = {
    # Records, overrides, size of an update, limit of the norm.
    "plain": (22, (), 8, None),
    "full": (24, (), 8, None),
    "reference": (22, ("context=reference",), 8, None),
    "reverse": (22, ("backward=reverse", "fuse=false"), 8, None),
    "naive-engine": (22, ("engine=naive",), 8, None),
    "clipped": (22, (CLIP,), 8, 0.2),
    "accumulated": (22, ("train.accumulate=2",), 16, None),
    # The last group has one batch of two: 16 + 2 rows.
    "short-group": (26, ("train.accumulate=3", CLIP), 24, 0.2),
    "discarded": (22, ("data.last_batch=discard",), 8, None),
    "one-short-batch": (5, (), 8, None),
}


@pytest.mark.parametrize("case", CASES)
def test_short_batches_are_means_over_their_records(case: str) -> None:
    count, overrides, size, clip = CASES[case]
    (weight,) = trained(defined(count, *overrides))
    used = count // BATCH * BATCH if case == "discarded" else count
    np.testing.assert_allclose(weight, expected(means(used, size), clip), rtol=0, atol=2e-6)


@pytest.mark.parametrize("overrides", [(), ("train.accumulate=2",), (CLIP,)])
@pytest.mark.parametrize("count", [22, 18, 10])
@two_cores
def test_contexts_share_the_mean(count: int, overrides: tuple[str, ...]) -> None:
    """Of the 2 records of a last batch the second context gets none; of 6 it gets 2."""
    (weight,) = trained(defined(count, TWO, *overrides).divided())
    size = 16 if "train.accumulate=2" in overrides else 8
    wanted = expected(means(count, size), 0.2 if CLIP in overrides else None)
    np.testing.assert_allclose(weight, wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_micro_batches_share_the_mean(parts: int, accumulate: int) -> None:
    """The last parts of a short batch have padded rows alone."""
    built = defined(26, f"train.accumulate={accumulate}").with_micro_batches(parts)
    (weight,) = trained(built)
    wanted = expected(means(26, 8 * accumulate))
    np.testing.assert_allclose(weight, wanted, rtol=0, atol=2e-6)


def test_batches_that_are_rolled_over_are_full() -> None:
    """22 records make 2, 3 and 3 batches of 8 in three epochs; records left over come first."""
    (weight,) = trained(defined(22, "data.last_batch=roll_over"))
    (same,) = trained(
        defined(22, "data.last_batch=roll_over", "train.optimizer.sgd.rescale_grad=batch_size")
    )
    assert weight.tobytes() == same.tobytes()


@pytest.mark.parametrize(
    ("given", "divisor"), [("0.03", 1 / 0.03), ("batch_size", 8), ("1", 1), ("0.125", 8)]
)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_factor_that_is_given_is_that_of_every_batch(
    given: str, divisor: float, accumulate: int
) -> None:
    """`batch_size` is MXNet's rule; with `accumulate`, of all batches of a full update."""
    if given == "batch_size":
        divisor *= accumulate
    groups = batches_of(26, 8 * accumulate)
    setting = f"train.optimizer.sgd.rescale_grad={given}"
    (weight,) = trained(defined(26, setting, f"train.accumulate={accumulate}"))
    wanted = expected([[divided(rows, divisor) for rows in groups]] * EPOCHS)
    np.testing.assert_allclose(weight, wanted, rtol=1e-5, atol=2e-6)


def test_class_weights_change_no_divisor() -> None:
    """A record of weight 0 counts: the weights scale its loss, the padding decides on rows."""
    weights = np.array([0.0, 1.0, 2.0, 0.5])
    data, labels = records()

    def gradient(rows: slice, weight: Array) -> Array:
        x, y = data[rows].astype("f8"), labels[rows]
        p = np.exp(x @ weight.T)
        p /= p.sum(axis=1, keepdims=True)
        p = (p - np.eye(4)[y]) * weights[y][:, None]
        return p.T @ x / len(y)

    steps = [lambda weight, rows=rows: gradient(rows, weight) for rows in batches_of(22)]
    (weight,) = trained(defined(22, "train.class_weights=[0, 1, 2, 0.5]"))
    np.testing.assert_allclose(weight, expected([steps] * EPOCHS), rtol=0, atol=2e-6)


def loss_layer(normalization: str, ignores: bool = False) -> str:
    more = ", use_ignore: true, ignore_label: 0" if ignores else ""
    return (
        "network.layers[1]={SoftmaxOutput: {name: softmax, label: label, "
        f"normalization: {normalization}{more}}}}}"
    )


@pytest.mark.parametrize("overrides", [(), ("train.accumulate=2",)])
@pytest.mark.parametrize("normalization", ["batch", "valid"])
def test_gradients_that_are_means_already_are_not_divided_again(
    normalization: str, overrides: tuple[str, ...]
) -> None:
    """With `accumulate` they are averaged over the batches, a short one included."""
    ignored = 0 if normalization == "valid" else None

    def mean(group: slice, weight: Array) -> Array:
        parts = batches_of(group.stop - group.start)
        found = []
        for part in parts:
            rows = slice(group.start + part.start, group.start + part.stop)
            total, count = gradients(weight, rows, ignored)
            found.append(total / max(count, 1))
        return np.mean(found, axis=0)

    groups = batches_of(26, 16 if overrides else 8)
    steps = [lambda weight, rows=rows: mean(rows, weight) for rows in groups]
    layer = loss_layer(normalization, ignored is not None)
    (weight,) = trained(defined(26, layer, *overrides))
    np.testing.assert_allclose(weight, expected([steps] * EPOCHS), rtol=0, atol=2e-6)


@two_cores
def test_means_of_contexts_are_averaged_over_those_with_records() -> None:
    """Of 10 records the last batch has two, all on the first context."""

    def mean(rows: Sequence[slice], weight: Array) -> Array:
        sums = [gradients(weight, part) for part in rows]
        return np.mean([total / count for total, count in sums], axis=0)

    parts = ([slice(0, 4), slice(4, 8)], [slice(8, 10)])
    steps = [lambda weight, rows=rows: mean(rows, weight) for rows in parts]
    (weight,) = trained(defined(10, loss_layer("batch"), TWO).divided())
    np.testing.assert_allclose(weight, expected([steps] * EPOCHS), rtol=0, atol=2e-6)


def test_ignored_labels_count_as_records() -> None:
    """Unless normalization is valid they are rows of the batch with a zero gradient."""
    steps = [
        lambda weight, rows=rows: gradients(weight, rows, 0)[0] / (rows.stop - rows.start)
        for rows in batches_of(22)
    ]
    (weight,) = trained(defined(22, loss_layer("null", ignores=True)))
    np.testing.assert_allclose(weight, expected([steps] * EPOCHS), rtol=0, atol=2e-6)


TWO_LOSSES = """\
network.layers=[{FullyConnected: {name: fc, num_hidden: 4, no_bias: true}}, \
{SoftmaxOutput: {name: one, data: fc, label: label, normalization: valid}}, \
{SoftmaxOutput: {name: two, data: fc, label: label}}]"""


def test_losses_of_which_some_are_means_need_a_factor() -> None:
    outputs = "network.outputs=[one, two]"
    problem = only_problem(defined, 22, TWO_LOSSES, outputs)
    assert "rescale_grad has no default" in problem.problem
    assert problem.got == "means: one; sums: two"
    assert problem.place is not None
    assert (problem.place.file, problem.place.line) == ("net.yaml", 14)
    defined(22, TWO_LOSSES, outputs, "train.optimizer.sgd.rescale_grad=0.1")
    defined(22, TWO_LOSSES, outputs, "train.optimizer.sgd.rescale_grad=batch_size")


@pytest.mark.parametrize("given", ["rows", "0", "-1", ".inf", "true"])
def test_other_values_are_refused_at_their_place(given: str) -> None:
    problem = only_problem(defined, 22, f"train.optimizer.sgd.rescale_grad={given}")
    assert "'rescale_grad'" in problem.problem
    assert "batch_size" in problem.expected
    assert problem.place is not None


BUCKETS = """\
name: net
threads: 1
network:
  inputs: {data: [9], mask: [9], lengths: [], label: []}
  layers:
    - Embedding: {name: embed, data: data, input_dim: 8, output_dim: 2}
    - expand_dims: {name: is_word, data: mask, axis: 2}
    - broadcast_mul: {name: words, lhs: embed, rhs: is_word}
    - sum: {name: total, axis: 1}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 4
  train: {dataset: text_lines, path: train.txt, shuffle: true, buckets: [2, 5]}
train:
  epochs: 3
  initializer: {constant: {value: 0.1}}
  optimizer: {sgd: {lr: 0.5, momentum: 0.9}}
  metrics: []
"""


@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_bucket_has_a_short_batch(accumulate: int) -> None:
    """Their words and labels, batch by batch, give the same embedding in float64."""
    draw = np.random.default_rng(0)
    lines = []
    for number in range(31):
        words = draw.integers(0, 6, 1 + number % 9)
        lines.append(f"{'ab'[words.sum() % 2]}\t{' '.join('uvwxyz'[word] for word in words)}\n")
    Path("train.txt").write_text("".join(lines))
    Path("net.yaml").write_text(BUCKETS)
    built = load("net.yaml", ["data.train.shuffle=false", f"train.accumulate={accumulate}"])
    run = prepare(built)
    batches = read_batches(run)
    run.close()
    assert len({len(label) for *_, label in batches[1:]}) > 1
    weight, velocity = np.full((8, 2), 0.1), np.zeros((8, 2))
    for _ in range(3):
        for first in range(0, len(batches), accumulate):
            group = batches[first : first + accumulate]
            gradient, count = np.zeros((8, 2)), 0
            for data, mask, label in group:
                logits = (weight[data] * mask[..., None]).sum(axis=1)
                p = np.exp(logits - logits.max(axis=1, keepdims=True))
                p = p / p.sum(axis=1, keepdims=True) - np.eye(2)[label]
                np.add.at(gradient, data, mask[..., None] * p[:, None])
                count += len(label)
            velocity = 0.9 * velocity - 0.5 * gradient / count
            weight = weight + velocity
    (found,) = trained(built, "embed_weight")
    np.testing.assert_allclose(found, weight, rtol=0, atol=5e-6)


def read_batches(run: Run) -> list[tuple[Array, Array, Array]]:
    """Return words, mask and labels of the records of every batch of an epoch."""
    iterator = run.iterators["train"]
    iterator.reset(1)
    slots = {name: np.zeros(spec.shape, spec.dtype) for name, spec in iterator.specs.items()}
    found = []
    while (batch := iterator.next_into(slots)) is not None:
        rows = [slots[name][: batch.valid].copy() for name in ("data", "mask", "label")]
        found.append((rows[0], rows[1].astype("f8"), rows[2]))
    return found


IMAGES = """\
name: net
threads: 1
network:
  inputs: {data: [1, 1, 3], label: []}
  layers:
    - FullyConnected: {name: fc, num_hidden: 2, no_bias: true}
    - SoftmaxOutput: {name: softmax, label: label}
data:
  batch_size: 4
  workers: 1
  on_bad_record: skip
  max_bad_records: 8
  train: {dataset: image_folder, path: train, split: all}
train:
  epochs: 2
  initializer: {constant: {value: 0.1}}
  optimizer: {sgd: {lr: 0.5}}
  metrics: []
"""


def test_bad_records_do_not_count_and_a_batch_of_them_changes_nothing() -> None:
    """Of 10 images one of the first batch, all of the second and none of the last are damaged."""
    bad = (1, 4, 5, 6, 7)
    pixels = np.random.default_rng(1).integers(0, 256, (10, 1, 3), np.uint8)
    for number, rows in enumerate(pixels):
        path = Path("train", "ab"[number // 5], f"{number}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rows).save(path)
        if number in bad:
            path.write_bytes(b"no image")
    Path("net.yaml").write_text(IMAGES)
    weight = np.full((2, 3), 0.1)
    for _ in range(2):
        for batch in ((0, 2, 3), (8, 9)):
            x = pixels[list(batch)].reshape(len(batch), 3) / 255
            p = np.exp(x @ weight.T)
            p = p / p.sum(axis=1, keepdims=True) - np.eye(2)[[n // 5 for n in batch]]
            weight = weight - 0.5 * p.T @ x / len(batch)
    (found,) = trained(load("net.yaml"))
    np.testing.assert_allclose(found, weight, rtol=0, atol=1e-6)


TORCH = """
import torch
from torch.nn.functional import cross_entropy

def answer(request):
    data, label = torch.tensor(request["data"]), torch.tensor(request["label"])
    records = torch.utils.data.TensorDataset(data, label)
    weight = torch.full((4, 3), 0.1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5, momentum=0.9)
    for _ in range(3):
        for x, y in torch.utils.data.DataLoader(records, batch_size=8):
            optimizer.zero_grad()
            cross_entropy(x @ weight.T, y, ignore_index=request["ignored"]).backward()
            if request["clip"]:
                torch.nn.utils.clip_grad_norm_([weight], request["clip"])
            optimizer.step()
    return weight.tolist()
"""
TORCH_CASES: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    ((), {"ignored": -100, "clip": None}),
    ((CLIP,), {"ignored": -100, "clip": 0.2}),
    ((loss_layer("valid", ignores=True),), {"ignored": 0, "clip": None}),
    ((loss_layer("batch"), CLIP), {"ignored": -100, "clip": 0.2}),
)


@cache
def pytorchs_weights() -> list[Any]:
    data, label = records()
    given = {"data": data[:22].tolist(), "label": label[:22].tolist()}
    return run_in(PyTorch, TORCH, [{**given, **request} for _, request in TORCH_CASES])


@pytest.mark.parametrize("case", range(len(TORCH_CASES)))
def test_the_mean_is_that_of_pytorchs_loss(case: int) -> None:
    wanted = pytorchs_weights()[case]
    (weight,) = trained(defined(22, *TORCH_CASES[case][0]))
    np.testing.assert_allclose(weight, wanted, rtol=0, atol=2e-6)


MXNET = """
import mxnet as mx

def answer(request):
    data, label = mx.nd.array(request["data"]), mx.nd.array(request["label"])
    dense = mx.gluon.nn.Dense(4, use_bias=False, in_units=3)
    dense.initialize(mx.init.Constant(0.1))
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    settings = {"learning_rate": 0.5, "momentum": 0.9}
    trainer = mx.gluon.Trainer(dense.collect_params(), "sgd", settings)
    for _ in range(3):
        for first in range(0, len(data), 8):
            with mx.autograd.record():
                found = loss(dense(data[first : first + 8]), label[first : first + 8])
            found.backward()
            trainer.step(8)
    return dense.weight.data().asnumpy().tolist()
"""


def test_batch_size_is_mxnets_rule() -> None:
    data, label = records()
    request = {"data": data[:22].tolist(), "label": label[:22].tolist()}
    (wanted,) = run_in(MXNet, MXNET, [request])
    (weight,) = trained(defined(22, "train.optimizer.sgd.rescale_grad=batch_size"))
    np.testing.assert_allclose(weight, wanted, rtol=0, atol=1e-5)


def test_the_factor_is_a_tensor_of_the_plan() -> None:
    """A plan serves every rule: it depends on none of their numbers."""
    plans = []
    for setting in ("null", "0.03", "batch_size"):
        run = prepare(defined(22, f"train.optimizer.sgd.rescale_grad={setting}"))
        assert run.plan.specs[GRADIENT_SCALE].shape == (1,)
        plans.append(run.plan.planned_bytes)
        run.close()
    assert len(set(plans)) == 1
