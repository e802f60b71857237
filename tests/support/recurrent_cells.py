"""Symbol with a recurrence: two memories, two outputs, and weights with several readers."""

from __future__ import annotations

from typing import Any

from mxrun.base.tensor import TensorSpec
from mxrun.graph.node import NodeEntry
from mxrun.graph.recurrence.node import recurrent_node
from mxrun.graph.recurrence.parameters import RecurrenceParameters
from mxrun.graph.symbol import Symbol, apply, fresh_names, group, variable

BATCH, WIDTH, HIDDEN = 3, 4, 6
WEIGHTS = ("of_x_weight", "of_h_weight", "gate_weight")


def dense(name: str, **inputs: Symbol) -> Symbol:
    return apply("FullyConnected", inputs, {"num_hidden": HIDDEN, "no_bias": True}, name)


def active(name: str, kind: str, data: Symbol) -> Symbol:
    return apply("Activation", {"data": data}, {"act_type": kind}, name)


def cell(drops: bool) -> tuple[Symbol, Symbol, Symbol]:
    """Return the next h and c, and another output; h, c and one weight have several readers."""
    x, h, shared = (variable(name) for name in ("x", "h", "of_h_weight"))
    c = variable("c", {"__shape__": f"(0, {HIDDEN})"})
    if drops:
        x = apply("Dropout", {"data": x}, {"p": 0.5}, "drop")
    total = {"lhs": dense("of_x", data=x), "rhs": dense("of_h", data=h, weight=shared)}
    i = active("i", "sigmoid", apply("elemwise_add", total, name="total"))
    f = active("f", "sigmoid", dense("again", data=h, weight=shared))
    g = active("g", "tanh", dense("gate", data=x))
    kept = apply("elemwise_mul", {"lhs": f, "rhs": c}, name="kept")
    new = apply("elemwise_mul", {"lhs": i, "rhs": g}, name="new")
    next_c = apply("elemwise_add", {"lhs": kept, "rhs": new}, name="next_c")
    next_h = apply("elemwise_mul", {"lhs": active("t", "tanh", next_c), "rhs": i}, name="next_h")
    return next_h, next_c, apply("elemwise_add", {"lhs": next_h, "rhs": next_c}, name="other")


def network(
    offset: int = 1, drops: bool = False, initial: bool = True, final: bool = True, **more: Any
) -> Symbol:
    """Return two stacked outputs and two final memories, and losses that weight all of them."""
    with fresh_names():
        h, c, other = cell(drops)
        parameters = RecurrenceParameters(
            sequences=("x",),
            memories=("h", "c"),
            offsets=(offset, 1),
            initial=("h",) if initial else (),
            num_outputs=2,
            final=("h", "c") if final else (),
            **more,
        )
        given = {"x": variable("data").heads[0]}
        if initial:
            given["h"] = variable("first_h").heads[0]
        heads = group([h, other, h, c]).heads
        node = recurrent_node("rnn", heads, parameters, given)
        outputs = [Symbol([NodeEntry(node, index)]) for index in range(node.num_outputs)]
        losses = []
        for index, output in enumerate(outputs):
            weighted = {"lhs": output, "rhs": variable(f"mask{index}")}
            product = apply("elemwise_mul", weighted, name=f"product{index}")
            total = apply("sum", {"data": product}, name=f"sum{index}")
            losses.append(apply("MakeLoss", {"data": total}, name=f"loss{index}"))
        return group([*losses, *outputs])


def specs(steps: int, offset: int = 1, final: bool = True) -> dict[str, TensorSpec]:
    stacked = TensorSpec((steps, BATCH, HIDDEN))
    found = {"data": TensorSpec((steps, BATCH, WIDTH)), "mask0": stacked, "mask1": stacked}
    if final:
        block = (BATCH, HIDDEN) if offset == 1 else (offset, BATCH, HIDDEN)
        found |= {"mask2": TensorSpec(block), "mask3": TensorSpec((BATCH, HIDDEN))}
    return found
