"""Parameters of RNN, and the order of the weights in its packed vector."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy.typing as npt
from pydantic import ConfigDict, Field, model_validator

from mxrun.base.dataclass import dataclass
from mxrun.base.params import Float32, Int32, Parameters
from mxrun.base.tensor import Shape

Array = npt.NDArray[Any]
Mode = Literal["rnn_relu", "rnn_tanh", "lstm", "gru"]

# Rows of a weight, in units of state_size, in the order of the gates: reset, update and new of a
# gru; input, forget, cell and output of an lstm.
_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}


_NAMES = {
    "input_weight": "i2h_weight",
    "recurrent_weight": "h2h_weight",
    "projection": "h2r_weight",
    "input_bias": "i2h_bias",
    "recurrent_bias": "h2h_bias",
}


_EXAMPLE: dict[str, Any] = {"state_size": 5, "num_layers": 1, "mode": "lstm"}
_CLIPPED = {"lstm_state_clip_min": -10, "lstm_state_clip_max": 10, "lstm_state_clip_nan": True}


class RNNParameters(Parameters):
    """Parameters of RNN (MXNet's, plus layout and initial_state)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {**_EXAMPLE, "layout": "NTC", "initial_state": "zeros"},
                {**_EXAMPLE, **_CLIPPED},
            ]
        }
    )

    state_size: Int32 = Field(
        ge=1, description="Size of the hidden state of each layer.", examples=[5]
    )
    num_layers: Int32 = Field(
        ge=1, description="Number of layers, each of which reads the one before.", examples=[1, 2]
    )
    bidirectional: bool = Field(
        default=False,
        description="Run every layer in both directions; the outputs stand side by side.",
    )
    mode: Mode = Field(description="Kind of recurrent layer.", examples=["lstm", "gru"])
    p: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="Probability that an element between two layers is set to zero in training.",
    )
    state_outputs: bool = Field(default=False, description="Return the last states too.")
    projection_size: Annotated[Int32, Field(ge=1)] | None = Field(
        default=None,
        description="Size to which a weight projects the output of an lstm at each step; default: "
        "no projection.",
    )
    lstm_state_clip_min: Float32 | None = Field(
        default=None, description="Least value of an lstm's cell state; default: no limit."
    )
    lstm_state_clip_max: Float32 | None = Field(
        default=None, description="Greatest value of an lstm's cell state; default: no limit."
    )
    lstm_state_clip_nan: bool = Field(
        default=False, description="Replace NaN in the cell state by lstm_state_clip_min."
    )
    use_sequence_length: bool = Field(
        default=False,
        description="Adds the argument sequence_length; otherwise all sequences have full length.",
    )
    layout: Literal["TNC", "NTC"] = Field(
        default="TNC",
        description="Order of data's and output's axes: T steps, N batch.",
        examples=["NTC", "TNC"],
    )
    initial_state: Literal["input", "zeros", "carry"] = Field(
        default="input",
        description="Where the first states come from: the arguments state and state_cell, zeros, "
        "or the last states of the previous batch.",
        examples=["zeros", "carry", "input"],
    )

    @model_validator(mode="after")
    def _consistent(self) -> RNNParameters:
        low, high = self.lstm_state_clip_min, self.lstm_state_clip_max
        if self.mode != "lstm" and self.projection_size is not None:
            raise ValueError("projection_size needs mode: lstm")
        if (low is None) != (high is None):
            raise ValueError("lstm_state_clip_min and lstm_state_clip_max go together")
        if low is not None and high is not None and low > high:
            raise ValueError("lstm_state_clip_min is above lstm_state_clip_max")
        if self.mode != "lstm" and low is not None:
            raise ValueError("lstm_state_clip_min needs mode: lstm")
        if self.carries and self.bidirectional:
            raise ValueError("initial_state: carry needs one direction")
        if self.lstm_state_clip_nan and low is None:
            raise ValueError("lstm_state_clip_nan needs lstm_state_clip_min")
        return self

    @property
    def directions(self) -> int:
        """2 with bidirectional, else 1."""
        return 2 if self.bidirectional else 1

    @property
    def gates(self) -> int:
        """Number of gates, each with state_size rows of the weights."""
        return _GATES[self.mode]

    @property
    def rows(self) -> int:
        """Rows of the weights of one direction of a layer."""
        return self.gates * self.state_size

    @property
    def hidden(self) -> int:
        """Size of the recurrent state: projection_size, or state_size."""
        return self.projection_size or self.state_size

    @property
    def has_cell(self) -> bool:
        """Whether there is a cell state."""
        return self.mode == "lstm"

    @property
    def carries(self) -> bool:
        """Whether the first states are the last ones of the previous run."""
        return self.initial_state == "carry"

    def state_names(self, pattern: str = "{}") -> list[str]:
        """Return the names of the states, within a pattern such as `carried_{}`."""
        names = ["state", "state_cell"] if self.has_cell else ["state"]
        return [pattern.format(name) for name in names]

    @property
    def is_clipped(self) -> bool:
        """Whether the cell state is clipped."""
        return self.lstm_state_clip_min is not None

    @property
    def has_mask(self) -> bool:
        """Whether there is dropout between layers."""
        return self.p > 0 and self.num_layers > 1

    @property
    def limit(self) -> int:
        """Largest 32-bit word for which an element is retained, as in Dropout."""
        return math.ceil((1 - self.p) * 2.0**32) - 1

    def width(self, layer: int, features: int) -> int:
        """Return the number of features that a layer reads at each step."""
        return features if layer == 0 else self.directions * self.hidden


@dataclass(frozen=True)
class PackedWeight:
    """One weight or bias in the packed vector.

    offset: of its first element. kind: input_weight, recurrent_weight, projection, input_bias or
    recurrent_bias.
    """

    layer: int
    direction: int
    kind: str
    offset: int
    shape: Shape

    @property
    def name(self) -> str:
        """Name of the parameter in MXNet's unfused cells, such as `l0_i2h_weight`."""
        return f"{'lr'[self.direction]}{self.layer}_{_NAMES[self.kind]}"

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def of(self, vector: Array) -> Array:
        """Return the weight as a view of the packed vector."""
        return vector[self.offset : self.offset + self.size].reshape(self.shape)


def packed_weights(p: RNNParameters, features: int) -> Iterator[PackedWeight]:
    """Yield the parts of the packed vector in its order, which is MXNet's and cuDNN's.

    First the weights of all layers and directions, then their biases.
    """
    offset = 0
    places = [(layer, side) for layer in range(p.num_layers) for side in range(p.directions)]
    for biases in (False, True):
        for layer, side in places:
            shapes: dict[str, Shape] = {
                "input_weight": (p.rows, p.width(layer, features)),
                "recurrent_weight": (p.rows, p.hidden),
            }
            if p.projection_size is not None:
                shapes["projection"] = (p.hidden, p.state_size)
            if biases:
                shapes = {"input_bias": (p.rows,), "recurrent_bias": (p.rows,)}
            for kind, shape in shapes.items():
                yield PackedWeight(layer, side, kind, offset, shape)
                offset += math.prod(shape)


def packed_size(p: RNNParameters, features: int) -> int:
    """Return the number of elements of the packed vector for data of so many features."""
    return sum(weight.size for weight in packed_weights(p, features))


def features_of(p: RNNParameters, size: int) -> int | None:
    """Return the number of data's features from the vector's size; None if none fits."""
    features, rest = divmod(size - packed_size(p, 0), p.directions * p.rows)
    return None if rest or features < 0 else features
