"""RNN as a network: products over all steps, and a recurrence for each direction of a layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.tensor import Shape
from mxrun.operator.composite import CompositeBuilder, Entry, RecurrentNetwork
from mxrun.ops.rnn.parameters import RNNParameters, packed_weights

_STEPS_FIRST = {"dim1": 0, "dim2": 1}


def expand_rnn(
    p: RNNParameters, builder: CompositeBuilder, given: Mapping[str, Entry], data: Shape
) -> list[Entry]:
    """Return the visible outputs.

    Raises UserError for parameters that only the operator has.
    """
    for key, is_used in (
        ("use_sequence_length", p.use_sequence_length),
        ("lstm_state_clip_min", p.is_clipped),
        ("initial_state: carry", p.carries),
    ):
        if is_used:
            problem = f"RNN with {key} runs as one operator only"
            raise UserError(Diagnostic(problem, hint="leave out fused: false"))
    return _UnfusedRNN(p, builder, given, data).outputs()


@dataclass(frozen=True)
class _UnfusedRNN:
    p: RNNParameters
    builder: CompositeBuilder
    given: Mapping[str, Entry]
    data: Shape

    def outputs(self) -> list[Entry]:
        """Return the output and, with state_outputs, the last states."""
        p, read = self.p, self.given["data"]
        is_batch_first = p.layout == "NTC"
        if is_batch_first:
            read = self._one("SwapAxis", "steps", [read], _STEPS_FIRST)
        weights, firsts = self._weights(), self._firsts()
        lasts: dict[str, list[Entry]] = {name: [] for name in p.state_names()}
        for layer in range(p.num_layers):
            if layer and p.p > 0:
                read = self._one("Dropout", f"dropout{layer}", [read], {"p": p.p})
            sides = []
            for side in range(p.directions):
                index = layer * p.directions + side
                first = {name: states[index] for name, states in firsts.items()}
                output, last = self._direction(read, weights[layer, side], first, layer, side)
                sides.append(output)
                for name, state in last.items():
                    lasts[name].append(state)
            read = sides[0]
            if len(sides) > 1:
                read = self._one("Concat", f"layer{layer}", sides, {"num_args": 2, "dim": 2})
        if is_batch_first:
            read = self._one("SwapAxis", "output", [read], _STEPS_FIRST)
        if not p.state_outputs:
            return [read]
        return [read, *(self._stacked(name, states) for name, states in lasts.items())]

    def _one(
        self,
        operator: str,
        name: str,
        inputs: Sequence[Entry],
        parameters: Mapping[str, object] | None = None,
    ) -> Entry:
        """Return the first output of an operator."""
        return self.builder.apply(operator, name, inputs, parameters)[0]

    def _weights(self) -> dict[tuple[int, int], dict[str, Entry]]:
        """Return the weights by layer and direction."""
        p, features = self.p, self.data[2]
        parameters = {key: getattr(p, key) for key in p.model_fields_set}
        names = [*packed_weights(p, features)]
        entries = self.builder.apply(
            "_unpack_rnn",
            "weights",
            [self.given["parameters"]],
            parameters | {"features": features},
        )
        found: dict[tuple[int, int], dict[str, Entry]] = {}
        for weight, entry in zip(names, entries, strict=True):
            found.setdefault((weight.layer, weight.direction), {})[weight.kind] = entry
        return found

    def _firsts(self) -> dict[str, list[Entry | None]]:
        """Return the first states of all directions; None for zeros."""
        p = self.p
        count = p.num_layers * p.directions
        if p.initial_state == "zeros":
            return {name: [None] * count for name in p.state_names()}
        parameters = {"num_outputs": count, "axis": 0, "squeeze_axis": True}
        return {
            name: [*self.builder.apply("SliceChannel", name, [self.given[name]], parameters)]
            for name in p.state_names()
        }

    def _stacked(self, name: str, states: list[Entry]) -> Entry:
        rows = [
            self._one("expand_dims", f"last_{name}{index}", [state], {"axis": 0})
            for index, state in enumerate(states)
        ]
        if len(rows) == 1:
            return rows[0]
        return self._one("Concat", f"last_{name}", rows, {"num_args": len(rows), "dim": 0})

    def _direction(
        self,
        read: Entry,
        weights: Mapping[str, Entry],
        first: Mapping[str, Entry | None],
        layer: int,
        side: int,
    ) -> tuple[Entry, Mapping[str, Entry]]:
        """Return the outputs of one direction of a layer, and its last states."""
        p, scope = self.p, f"{'lr'[side]}{layer}"
        dense = {"num_hidden": p.rows, "flatten": False}
        x = self._one(
            "FullyConnected",
            f"{scope}/input",
            [read, weights["input_weight"], weights["input_bias"]],
            dense,
        )
        shared = {key: weights[key] for key in ("recurrent_weight", "recurrent_bias")}
        if p.projection_size is not None:
            shared["projection"] = weights["projection"]
        step = _UnfusedStep(self, f"{scope}/step")
        network = RecurrentNetwork({"x": x}, dict(first), shared, step.run, side == 1)
        (output,), last = self.builder.recur(f"{scope}/step", network)
        return output, last


@dataclass(frozen=True)
class _UnfusedStep:
    """Body of the recurrence."""

    parts: _UnfusedRNN
    scope: str

    def run(self, inside: Mapping[str, Entry]) -> tuple[list[Entry], dict[str, Entry]]:
        """Return the output, and the states after the step."""
        p = self.parts.p
        y = self._apply(
            "FullyConnected",
            "recurrent",
            [inside["state"], inside["recurrent_weight"], inside["recurrent_bias"]],
            num_hidden=p.rows,
        )
        if p.mode == "lstm":
            output, cell = self._lstm(inside["x"], y, inside["state_cell"])
            if p.projection_size is not None:
                output = self._apply(
                    "FullyConnected",
                    "projected",
                    [output, inside["projection"]],
                    num_hidden=p.hidden,
                    no_bias=True,
                )
            return [output], {"state": output, "state_cell": cell}
        if p.mode == "gru":
            output = self._gru(inside["x"], y, inside["state"])
        else:
            output = self._apply(
                p.mode.removeprefix("rnn_"), "h", [self._sum("sum", inside["x"], y)]
            )
        return [output], {"state": output}

    def _apply(
        self, operator: str, name: str, inputs: Sequence[Entry], **parameters: object
    ) -> Entry:
        return self.parts.builder.apply(operator, f"{self.scope}/{name}", inputs, parameters)[0]

    def _split(self, name: str, entry: Entry, count: int) -> Sequence[Entry]:
        parameters = {"num_outputs": count, "axis": 1}
        name = f"{self.scope}/{name}"
        return self.parts.builder.apply("SliceChannel", name, [entry], parameters)

    def _sum(self, name: str, left: Entry, right: Entry) -> Entry:
        return self._apply("elemwise_add", name, [left, right])

    def _product(self, name: str, left: Entry, right: Entry) -> Entry:
        return self._apply("elemwise_mul", name, [left, right])

    def _lstm(self, x: Entry, y: Entry, c: Entry) -> tuple[Entry, Entry]:
        gates = self._split("gates", self._sum("sum", x, y), 4)
        i, f, o = (
            self._apply("sigmoid", name, [gates[index]])
            for name, index in (("i", 0), ("f", 1), ("o", 3))
        )
        g = self._apply("tanh", "g", [gates[2]])
        cell = self._sum("c", self._product("kept", f, c), self._product("new", i, g))
        return self._product("h", o, self._apply("tanh", "tanh", [cell])), cell

    def _gru(self, x: Entry, y: Entry, h: Entry) -> Entry:
        own, other = self._split("x_gates", x, 3), self._split("y_gates", y, 3)
        reset, update = (
            self._apply("sigmoid", name, [self._sum(f"{name}_sum", own[index], other[index])])
            for index, name in enumerate(("r", "z"))
        )
        inner = self._sum("n_sum", own[2], self._product("reset", reset, other[2]))
        new = self._apply("tanh", "n", [inner])
        change = self._apply("elemwise_sub", "change", [h, new])
        return self._sum("h", new, self._product("kept", update, change))
