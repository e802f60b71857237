"""`implementation: auto` selects the fastest candidate and reports the times of all."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from networks import BATCH, chain, convolutional, gradients_of, plan_of, softmax

from mxrun.base.tensor import TensorSpec
from mxrun.device.cpu.onednn import library
from mxrun.graph.phases import EVALUATE, TRAIN
from mxrun.graph.symbol import Symbol, fresh_names, variable
from mxrun.operator.kernel import Candidate, Kernels
from mxrun.planner.plan import Plan

pytestmark = pytest.mark.skipif(library.load() is None, reason="needs oneDNN")


class LastIs:
    """Autotuner for which the last candidate takes `factor` times as long as the others."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.questions: list[str] = []

    def __call__(self, question: str, candidates: Mapping[str, Kernels]) -> dict[str, Candidate]:
        self.questions.append(question)
        kernels = {name: next(iter(prepare())) for name, prepare in candidates.items()}
        found = {name: Candidate(each.implementation, 1.0) for name, each in kernels.items()}
        last = [*found][-1]
        return found | {last: Candidate(found[last].implementation, self.factor)}


def chosen(plan: Plan, phase: str = TRAIN) -> dict[str, str]:
    return plan.phases[phase].implementations()


def pooled() -> Symbol:
    with fresh_names():
        pooling = {"kernel": (3, 3), "pool_type": "avg"}
        first = ("Convolution", {"num_filter": 8, "kernel": (1, 1)}, "conv")
        dense = ("FullyConnected", {"num_hidden": 4}, "fc")
        return softmax(chain(variable("data"), first, ("Pooling", pooling, "pool"), dense))


def test_P17_the_fastest_candidate_is_taken_part_by_part() -> None:
    preferred, auto = plan_of(convolutional()), LastIs(0.5)
    plan = plan_of(convolutional(), implementation="auto", chooser=auto)
    before, after = chosen(preferred), chosen(plan)
    assert before.keys() == after.keys()
    both = ("conv2:backward:data", "conv2:backward:weight+bias")
    for name in ("conv1", "conv2", "conv1:backward", *both):
        assert before[name] != after[name]
    for step in plan.phases[TRAIN].steps:
        if step.kernel is not None and step.kernel.candidates:
            times = {each.implementation: each.seconds for each in step.kernel.candidates}
            assert next(iter(times)) == before[step.name]
            assert times[after[step.name]] == min(times.values())
    assert any("part: data_grad" in question for question in auto.questions)
    assert any("part: weight_grad" in question for question in auto.questions)


@pytest.mark.parametrize("factor", [0.98, 1.0, 1.5])
def test_P17_what_is_hardly_faster_displaces_nothing(factor: float) -> None:
    plan = plan_of(convolutional(), implementation="auto", chooser=LastIs(factor))
    assert chosen(plan) == chosen(plan_of(convolutional()))


def test_P17_without_times_the_preferred_is_taken() -> None:
    for chooser in (None, lambda question, candidates: {}):
        plan = plan_of(convolutional(), implementation="auto", chooser=chooser)
        assert chosen(plan) == chosen(plan_of(convolutional()))


def test_P17_what_was_chosen_before_is_taken_again_untimed() -> None:
    plan = plan_of(convolutional(), implementation="auto", chooser=LastIs(0.5))
    autotuned = {name: phase.implementations() for name, phase in plan.phases.items()}
    late = LastIs(2.0)
    again = plan_of(convolutional(), implementation="auto", chooser=late, autotuned=autotuned)
    assert {name: phase.implementations() for name, phase in again.phases.items()} == autotuned
    assert late.questions == []


def test_P17_implementations_are_candidates_too() -> None:
    plan = plan_of(pooled(), implementation="auto", chooser=LastIs(0.5))
    before = chosen(plan_of(pooled()))["pool"]
    assert before.startswith("onednn")
    assert chosen(plan)["pool"] == "jit"
    assert chosen(plan)["pool:backward"] == "jit"
    autotuned = {TRAIN: chosen(plan), EVALUATE: chosen(plan, EVALUATE)}
    assert chosen(plan_of(pooled(), autotuned=autotuned)) == chosen(plan)


def test_P17_every_candidate_computes_the_same() -> None:
    expected = gradients_of(convolutional())
    got = gradients_of(convolutional(), implementation="auto", chooser=LastIs(0.5))
    for name, gradient in expected.items():
        np.testing.assert_allclose(got[name], gradient, rtol=1e-4, atol=1e-5)


def test_P17_equal_words_mean_equal_work() -> None:
    auto = LastIs(0.5)
    plan_of(convolutional(), implementation="auto", chooser=auto)
    other = LastIs(0.5)
    inputs = {"data": TensorSpec((BATCH + 1, 3, 9, 9)), "label": TensorSpec((BATCH + 1,), "int32")}
    plan_of(convolutional(), implementation="auto", chooser=other, inputs=inputs)
    assert not {*auto.questions} & {*other.questions}
    for question in auto.questions:
        assert "threads: 2" in question
        assert "requests: " in question


STRIDED_AND_DILATED = {
    "Convolution-1": ((4, 3, 21), {"kernel": (1,), "stride": (2,), "dilate": (2,)}),
    "Convolution-2": (
        (8, 2, 13, 29),
        {"kernel": (4, 4), "stride": (3, 3), "dilate": (2, 3), "pad": (1, 0)},
    ),
    "Deconvolution-1": ((4, 3, 21), {"kernel": (1,), "stride": (2,), "dilate": (3,)}),
    "Deconvolution-2": (
        (4, 2, 13, 11),
        {"kernel": (4, 4), "stride": (3, 3), "dilate": (2, 3), "pad": (1, 0)},
    ),
}


@pytest.mark.parametrize("case", STRIDED_AND_DILATED)
def test_every_candidate_under_stride_and_dilation_can_be_taken(case: str) -> None:
    """If a data gradient is computed in other sizes, its candidates are those for these sizes."""
    shape, window = STRIDED_AND_DILATED[case]
    batch, _, *spatial = shape
    with fresh_names():
        layers = (
            ("Convolution", {"num_filter": 4, "kernel": (1,) * len(spatial)}, "first"),
            (case.split("-", maxsplit=1)[0], {"num_filter": 4, **window}, "strided"),
            ("FullyConnected", {"num_hidden": 3}, "fc"),
        )
        symbol = softmax(chain(variable("data"), *layers))
    inputs = {"data": TensorSpec(shape), "label": TensorSpec((batch,), "int32")}
    expected = gradients_of(symbol, inputs=inputs)
    got = gradients_of(symbol, inputs=inputs, implementation="auto", chooser=LastIs(0.5))
    for name, gradient in expected.items():
        np.testing.assert_allclose(got[name], gradient, rtol=1e-4, atol=1e-4)
