"""Gradient graph: computed and omitted gradients; two methods agree bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from executors import executor_for
from networks import (
    BATCH,
    INPUTS,
    NETWORKS,
    chain,
    convolutional,
    fill,
    gradients_of,
    plan_of,
    residual,
    same_bits,
    shared,
    softmax,
    trained,
)

from mxrun.base.errors import InternalError, UserError
from mxrun.base.tensor import TensorSpec
from mxrun.compiler.compile import compile_graphs, compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.graph.gradient import gradient
from mxrun.graph.graph import Graph, GraphBuilder, MemoryClass, StepKind
from mxrun.graph.infer import infer
from mxrun.graph.lower import lower
from mxrun.graph.phases import TRAIN
from mxrun.graph.symbol import apply, fresh_names, group, variable
from mxrun.graph.trainability import reached
from mxrun.operator.kernel import OpReqType


@pytest.mark.parametrize("name", NETWORKS)
def test_L12_both_backward_styles_give_the_same_bits(name: str) -> None:
    symbol = NETWORKS[name]()
    explicit = gradients_of(symbol)
    reverse = gradients_of(symbol, backward="reverse", in_place=False, reuse=False)
    assert same_bits(explicit, reverse)
    assert all(np.abs(gradient).max() > 0 for gradient in explicit.values())


def test_X5_fan_out_is_the_sum_of_what_each_reader_gives() -> None:
    symbol = residual()
    steps = plan_of(symbol, add_to=False).phases[TRAIN].steps
    sums = [step.name for step in steps if ":grad_sum" in step.name]
    # The stem's output has three readers: two additions, folded in their order.
    assert len(sums) == 2
    assert sum(step.name == "stem:backward" for step in steps) == 1


def test_X5_the_sum_equals_the_parts() -> None:
    """w is read twice with the same input, so its gradient is twice that of one reader."""
    data, weight = variable("data"), variable("w")

    def heads(count: int) -> dict[str, np.ndarray]:
        outputs = [
            apply(
                "FullyConnected",
                {"data": data, "weight": weight},
                {"num_hidden": 4, "no_bias": True},
                f"fc{i}",
            )
            for i in range(count)
        ]
        joined = outputs[0]
        for i, output in enumerate(outputs[1:]):
            joined = apply("elemwise_add", {"lhs": joined, "rhs": output}, {}, f"add{i}")
        symbol = apply(
            "SoftmaxOutput",
            {"data": joined, "label": variable("label")},
            {"grad_scale": 1.0},
            "softmax",
        )
        return gradients_of(symbol, inputs=INPUTS)

    # fc0 + fc1 with one weight equals fc0 with the weight doubled: d/dw f(2w) = 2 f'(2w).
    assert heads(2)["w"].shape == heads(1)["w"].shape
    assert not np.allclose(heads(2)["w"], heads(1)["w"])


def test_L2_a_shared_weight_is_one_array_one_gradient_one_update() -> None:
    plan = plan_of(shared())
    assert sum(block.name == "shared_weight" for block in plan.pinned) == 1
    updates = [step.name for step in plan.phases[TRAIN].steps if step.kind is StepKind.UPDATE]
    assert updates.count("shared_weight:update") == 1
    sums = [step for step in plan.phases[TRAIN].steps if step.name.startswith("shared_weight:grad")]
    assert len(sums) == 1


def test_L3_frozen_parameters_keep_every_byte_and_cost_nothing() -> None:
    frozen = ("conv1_weight", "conv1_bias")
    plan = plan_of(convolutional(), frozen)
    executor = executor_for(plan)
    fill(executor)
    before = {name: executor.tensor(name).values().tobytes() for name in frozen}
    other = executor.tensor("fc_weight").values().tobytes()
    for _ in range(3):
        executor.run(TRAIN)
    assert {name: executor.tensor(name).values().tobytes() for name in frozen} == before
    assert executor.tensor("fc_weight").values().tobytes() != other
    names = {block.name for block in plan.pinned}
    assert not names & {"conv1_weight:mom", "conv1_bias:mom"}
    values = {value.name for value in plan.phases[TRAIN].graph.values}
    assert not any(name.startswith(("conv1_weight_grad", "conv1_bias_grad")) for name in values)
    # Backward is pruned below conv2: nothing of conv1, tanh1 or pool1 runs backwards.
    steps = {step.name for step in plan.phases[TRAIN].steps}
    assert not steps & {"conv1:backward", "tanh1:backward", "pool1:backward"}


def test_L5_the_first_layer_computes_no_data_gradient() -> None:
    phase = plan_of(convolutional()).phases[TRAIN]
    first = next(step for step in phase.steps if step.name == "conv1:backward")
    assert first.requests == (OpReqType.NULL, OpReqType.WRITE, OpReqType.WRITE)
    assert first.outputs[0] is None
    assert not any(value.name.startswith("data_grad") for value in phase.graph.values)


def test_label_gets_no_gradient() -> None:
    phase = plan_of(convolutional()).phases[TRAIN]
    assert not any(value.name.startswith("label_grad") for value in phase.graph.values)


def test_a_network_without_loss_cannot_be_trained() -> None:
    symbol = apply("FullyConnected", {"data": variable("data")}, {"num_hidden": 4}, "fc")
    with pytest.raises(UserError, match="no loss"):
        plan_of(symbol, inputs={"data": INPUTS["data"]})


def test_P5_fully_connected_reads_data_and_weight_before_the_update() -> None:
    phase = plan_of(convolutional()).phases[TRAIN]
    order = [step.name for step in phase.steps]
    read = {}
    for part in ("data", "weight+bias"):
        place = order.index(f"fc:backward:{part}")
        assert place < order.index("fc_weight:update")
        values = phase.steps[place].reads
        read[part] = {phase.graph.values[value].name.split("@")[0] for value in values}
    assert all("fc_output_grad" in names and "fc_output" not in names for names in read.values())
    assert "fc_weight" in read["data"]
    assert "fc_weight" not in read["weight+bias"]


def test_P5_outputs_live_as_long_as_backward_needs_them() -> None:
    """FullyConnected's output is freed after its last reader, Pooling's after its backward."""
    with_numpy = plan_of(convolutional(), implementation="numpy", in_place=False)
    phase = with_numpy.phases[TRAIN]
    order = [step.name for step in phase.steps]
    life = {block.name: block for block in phase.blocks}
    assert life["fc_output"].last == order.index("softmax") + 1
    assert life["pool1_output"].last == order.index("pool1:backward") + 1


def test_gradient_memory_classes() -> None:
    classes = plan_of(convolutional()).classes()
    assert classes["gradients"].total_bytes > 0
    assert classes["activation_gradients"].total_bytes > 0
    assert classes["optimizer"].total_bytes == classes["parameters"].total_bytes
    assert set(classes) == {kind.value for kind in MemoryClass}


def test_losses_fall() -> None:
    losses, _ = trained(plan_of(convolutional()), steps=20)
    assert losses[-1] < losses[0] / 2
    assert losses[0] / BATCH < 10


def test_a_gradient_that_only_passes_is_no_step() -> None:
    """Both inputs of a sum share its output's gradient; a parameter gets a copy of its own."""
    symbol = residual()
    steps = {step.name: step for step in plan_of(symbol).phases[TRAIN].graph.steps}
    assert "join" in steps
    assert "join:backward" not in steps
    bias = apply("elemwise_add", {"lhs": variable("data"), "rhs": variable("bias")}, {}, "shifted")
    loss = apply("LinearRegressionOutput", {"data": bias, "label": variable("label")}, {}, "loss")
    inputs = {name: TensorSpec((BATCH, 3)) for name in ("data", "label", "sample_weight")}
    request = CompileRequest(inputs, gradients=("bias",), phases=(TRAIN,))
    graph = compile_plan(loss, request).phases[TRAIN].graph
    value = graph.values[graph.results["bias_grad"]]
    assert value.memory_class is MemoryClass.GRADIENTS
    assert "shifted:backward" in {step.name for step in graph.steps}


@pytest.mark.parametrize("backward", ["explicit_graph", "reverse"])
def test_what_gets_no_gradient_that_it_declares_to_read_has_no_backward(backward: str) -> None:
    """BatchNorm's mean passes no gradient, so layers before it learn by other paths only."""
    with fresh_names():
        stem = chain(variable("data"), ("FullyConnected", {"num_hidden": 4}, "stem"))
        norm = apply("BatchNorm", {"data": stem}, {"output_mean_var": True}, "norm")
        joined = apply("broadcast_add", {"lhs": stem, "rhs": norm[1]}, {}, "joined")
        symbol = softmax(joined)
    plan = plan_of(symbol, ("norm_gamma", "norm_beta"), backward=backward)
    assert "norm:backward" not in {step.name for step in plan.phases[TRAIN].steps}
    losses, _ = trained(plan)
    assert np.isfinite(losses).all()


def squares(read_once_more: bool = False) -> Graph:
    """The forward graph of (w * w) as `square`, and of `square * 3` as `scaled` if wanted."""
    with fresh_names():
        weight = variable("w")
        square = apply("elemwise_mul", {"lhs": weight, "rhs": weight}, {}, "square")
        scaled = apply("_mul_scalar", {"data": square}, {"scalar": 3.0}, "scaled")
    symbol = group([square, scaled]) if read_once_more else square
    return lower(symbol, infer(symbol.heads, {"w": (4,)}), (), is_train=True)


def with_head_gradients(graph: Graph, *heads: str) -> tuple[Graph, dict[int, int]]:
    builder = GraphBuilder(graph)
    found = {
        graph.results[head]: builder.source(f"{head}_grad", TensorSpec((4,)), MemoryClass.IO)
        for head in heads
    }
    return builder.build(), found


def run_gradient(graph: Graph, heads: dict[int, int], **tensors: object) -> np.ndarray:
    differentiated = gradient(graph, ["w"], heads)
    result = differentiated.graph.with_results({"w_grad": differentiated.gradients["w"]})
    plan = compile_graphs({TRAIN: result}, CompileRequest({}, phases=(TRAIN,)))
    executor = executor_for(plan)
    for name, value in tensors.items():
        executor.tensor(name).write(value)
    executor.run(TRAIN)
    return executor.result(TRAIN, "w_grad").read()


def test_a_head_that_is_no_loss_starts_with_the_given_gradient() -> None:
    graph, heads = with_head_gradients(squares(), "square_output")
    found = run_gradient(graph, heads, w=[1, 2, 3, 4], square_output_grad=[1, 10, 100, 1000])
    assert found.tolist() == [2, 40, 600, 8000]


def test_a_head_gradient_is_added_to_those_of_readers() -> None:
    graph, heads = with_head_gradients(squares(True), "square_output", "scaled_output")
    found = run_gradient(
        graph, heads, w=[1, 2, 3, 4], square_output_grad=1, scaled_output_grad=[0, 1, 2, 3]
    )
    assert found.tolist() == [2, 4 * 4, 6 * 7, 8 * 10]


def test_a_source_can_be_a_head() -> None:
    graph = squares()
    builder = GraphBuilder(graph)
    given = builder.source("w_head", TensorSpec((4,)), MemoryClass.IO)
    differentiated = gradient(builder.build(), ["w"], {graph.sources["w"]: given})
    assert differentiated.gradients["w"] == given
    assert len(differentiated.graph.steps) == len(graph.steps)


def test_a_head_gradient_has_the_shape_of_its_head() -> None:
    graph = squares()
    builder = GraphBuilder(graph)
    given = builder.source("g", TensorSpec((1,)), MemoryClass.IO)
    with pytest.raises(InternalError, match="square_output"):
        gradient(builder.build(), ["w"], {graph.results["square_output"]: given})


def test_sources_that_no_head_depends_on_are_not_reached() -> None:
    graph = squares()
    square, weight = graph.results["square_output"], graph.sources["w"]
    assert reached(graph, ["w"], [square]) == ["w"]
    assert reached(graph, ["w"], [weight]) == ["w"]
    assert reached(graph, ["w"], []) == []
    with pytest.raises(UserError, match="no loss"):
        gradient(graph, ["w"])
