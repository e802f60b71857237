"""scaled_dot_product_attention: its parameters, shapes and gradients, and the NumPy body."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator
from typing_extensions import Self

from mxrun.base.dataclass import dataclass
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Float32
from mxrun.base.tensor import Shape
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import POSITION, IncrementalForm, SequenceArguments
from mxrun.operator.operator import BackwardCall, ForwardCall, Operator, OperatorCall
from mxrun.operator.property import (
    CarriedState,
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    Precision,
)
from mxrun.operator.register import AnyProperty, register
from mxrun.ops.attention.shapes import BLOCK, AttentionSizes, infer_shapes
from mxrun.ops.positions import PositionParameters, given_position, require_positions

T = TypeVar("T")
Array = npt.NDArray[Any]

PROJECTIONS = ("query", "key", "value")
CACHES = ("key_cache", "value_cache")


class AttentionParameters(PositionParameters):
    """Parameters of scaled_dot_product_attention."""

    num_heads: Annotated[int, Field(ge=1)] = Field(
        description="Number of heads of the queries.", examples=[2]
    )
    num_kv_heads: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Number of heads of keys and values, a divisor of num_heads; default: "
        "num_heads.",
    )
    causal: bool = Field(
        default=False, description="Whether query i reads only the keys 0 to i of its sequence."
    )
    scale: Float32 | None = Field(
        default=None,
        description="Factor of the products of queries and keys; default: 1 / sqrt(size of a "
        "query's head).",
    )
    packed: bool = Field(
        default=False,
        description="Read one tensor, data, with queries, keys and values side by side.",
    )
    use_mask: bool = Field(
        default=False, description="Adds the argument mask, which is added to the scaled products."
    )
    use_lengths: bool = Field(
        default=False,
        description="Adds the argument lengths: the number of keys of each sequence; the others "
        "are padding.",
    )

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.num_heads % self.kv_heads:
            raise ValueError(f"num_heads {self.num_heads} is no multiple of num_kv_heads")
        if self.use_position and (self.use_mask or self.use_lengths):
            raise ValueError("use_position needs attention without mask and lengths")
        return self

    @property
    def kv_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.num_kv_heads or self.num_heads


@register(
    "scaled_dot_product_attention",
    foreign={
        "scaled_dot_product_attention: {num_heads: 4, packed: true}, of queries, keys and values "
        "that a FullyConnected projects": "multiheadattention attention groupqueryattention",
    },
)
class AttentionProperty(OperatorProperty[AttentionParameters]):
    """output = softmax(scale * query x key^T + mask) x value, for each head.

    query [N, Tq, num_heads * D], key [N, Tk, num_kv_heads * D], value [N, Tk, num_kv_heads * Dv],
    output [N, Tq, num_heads * Dv]. With packed, one argument data [N, T, (num_heads + 2 *
    num_kv_heads) * D] holds query, key and value side by side. num_heads / num_kv_heads
    neighbouring heads of the queries share one head of keys and values. The hidden output logsumexp
    [N, num_heads, Tq] is the logarithm of the sum of the exponentials; it is float32 beside
    bfloat16 data. A query that reads no key has the output 0.

    mask, with use_mask: [1 or N, 1 or num_heads, Tq, Tk], -inf for a key that is not read. lengths,
    with use_lengths: [N]. A network may train the mask, such as a bias of relative positions.

    position, with use_position: [1], that of the first query, at most max_length - Tq. The keys and
    values, of as many positions as queries, are first stored in the states key_cache
    [N, num_kv_heads, ceil(max_length / 16), D, 16] and value_cache [N, num_kv_heads, max_length,
    Dv], which also hold those of the earlier positions: queries read all up to the last of these
    positions, or with causal up to their own. The hidden outputs key_cache_output and
    value_cache_output overwrite the states, and stand for logsumexp. Beside bfloat16 data they
    are bfloat16. No gradient.

    Backward reads the output's gradient g, query, key, value (or data), mask, lengths, output and
    logsumexp, from which it computes the probabilities p again: value's gradient is p^T g, and with
    s = p * (g value^T - sum of g * output) query's is scale * s key, key's is scale * s^T query,
    and the mask's is s, summed over the sequences and heads that share it, in this order. In a
    compiled kernel one thread makes such a sum: a mask for all sequences and heads is the slowest.
    """

    type_string = "scaled_dot_product_attention"
    family = OperatorFamily.DENSE
    parameter_type = AttentionParameters
    precision = Precision.BFLOAT16
    reads_only_data = True
    is_floating = True
    integer_arguments = ("lengths", POSITION)

    @property
    def num_projections(self) -> int:
        """Number of the arguments that hold query, key and value: 3, or 1 if packed."""
        return 1 if self.parameters.packed else len(PROJECTIONS)

    def list_arguments(self) -> tuple[str, ...]:
        """query, key and value, or data; mask, lengths and position if used."""
        p = self.parameters
        projections = ("data",) if p.packed else PROJECTIONS
        used = (*("mask",) * p.use_mask, *("lengths",) * p.use_lengths)
        return (*projections, *used, *p.positions)

    def list_auxiliary_states(self) -> tuple[str, ...]:
        """The caches, with a position."""
        return CACHES if self.parameters.use_position else ()

    def list_outputs(self) -> tuple[str, ...]:
        """The output and the hidden logsumexp, or the hidden caches."""
        states = tuple(f"{name}_output" for name in self.list_auxiliary_states())
        return ("output", *(states or ("logsumexp",)))

    def list_carried_states(self) -> tuple[CarriedState, ...]:
        """The caches, which are overwritten in place."""
        return tuple(CarriedState(name, f"{name}_output") for name in self.list_auxiliary_states())

    def list_mutated_inputs(self) -> dict[int, int]:
        """The caches are overwritten."""
        first = len(self.list_arguments())
        return {first + i: 1 + i for i in range(len(self.list_auxiliary_states()))}

    @property
    def num_visible_outputs(self) -> int:
        """1: the others are hidden."""
        return 1

    def incremental(self, sequences: SequenceArguments) -> IncrementalForm[AnyProperty] | None:
        """Return attention over a cache of keys and values.

        Raises UserError unless only earlier positions are read.
        """
        p = self.parameters
        if not p.causal:
            problem = "attention that reads later positions cannot compute one after the other"
            raise UserError(Diagnostic(problem, hint="causal: true"))
        if p.use_mask or p.use_lengths:
            given = "use_mask" if p.use_mask else "use_lengths"
            problem = "attention with a mask or lengths cannot compute one position after the other"
            raise UserError(Diagnostic(problem, None, "causal: true alone", f"{given}: true"))
        if not all(sequences.counts_positions(i, axis=1) for i in range(len(sequences.axes))):
            return None
        changes = {"use_position": True, "max_length": sequences.length}
        return IncrementalForm(type(self)(p.model_copy(update=changes)), 1)

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Unify batch, steps and the sizes of heads between all tensors."""
        p, names = self.parameters, self.list_arguments()
        numbers = (p.num_heads, p.kv_heads, p.max_length)
        found = infer_shapes(names, self.list_outputs(), inputs, outputs, *numbers)
        if p.use_position:
            require_positions(names[0], found.inputs[0], p.max_length)
        return found

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """None with a position."""
        if self.parameters.use_position:
            return (GradientKind.NONE,) * len(self.list_arguments())
        return super().list_gradients()

    def declare_backward_dependency(
        self, out_grad: Sequence[T], in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[T]:
        """Return out_grad, all inputs, output and logsumexp."""
        return [out_grad[0], *in_data, *out_data]

    def forward_inplace_option(
        self, in_data: Sequence[T], out_data: Sequence[T]
    ) -> list[tuple[T, T]]:
        """Pair query and output."""
        return [] if self.parameters.packed else [(in_data[0], out_data[0])]

    def backward_inplace_option(
        self,
        out_grad: Sequence[T],
        in_data: Sequence[T],
        out_data: Sequence[T],
        in_grad: Sequence[T],
    ) -> list[tuple[T, T]]:
        """Pair the output's gradient with query's."""
        return [] if self.parameters.packed else [(out_grad[0], in_grad[0])]

    def sizes(self, in_shapes: Sequence[Shape]) -> AttentionSizes:
        """Return the sizes of attention over arguments of these shapes."""
        p = self.parameters
        projections = in_shapes[: self.num_projections]
        cached = p.max_length if p.use_position else None
        return AttentionSizes.of(projections, p.num_heads, p.kv_heads, cached)

    def scale_of(self, sizes: AttentionSizes) -> float:
        """Return the factor of the products."""
        scale = self.parameters.scale
        return 1 / math.sqrt(sizes.head_size) if scale is None else scale

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two per multiply-add of both products, over the pairs of a query and a key it reads."""
        p, sizes = self.parameters, self.sizes(in_shapes)
        pairs = sizes.queries * sizes.keys
        if p.use_position:
            # The mean over the positions.
            pairs //= 2
        elif p.causal:
            pairs = sum(min(query + 1, sizes.keys) for query in range(sizes.queries))
        rows, columns = sizes.batch * sizes.heads, sizes.head_size + sizes.value_size
        flops: int = 2 * rows * pairs * columns
        return flops

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return Attention(self)


@dataclass(frozen=True)
class _Heads:
    """Query [N, K, G, Tq, D], key [N, K, 1, Tk, D] and value, for G = heads / K, and the scores.

    read: which keys are read, broadcast to the scores' shape; the scores of others are -inf.
    """

    query: Array
    key: Array
    value: Array
    scores: Array
    read: Array

    def product(self, weights: Array, right: Array) -> Array:
        """Return weights x right over the keys that are read, of which others have weight 0."""
        return _product(weights, right, self.read)

    def transposed_product(self, weights: Array, right: Array) -> Array:
        """Return weights^T x right, summed over the heads that share keys."""
        read = np.broadcast_to(self.read, self.scores.shape)
        result: Array = _product(weights.swapaxes(-1, -2), right, read.swapaxes(-1, -2))
        total: Array = result.sum(axis=2, keepdims=True)
        return total


def _product(weights: Array, right: Array, read: Array) -> Array:
    """Return weights x right without the terms that are not read, even if these are not finite."""
    if np.isfinite(right).all():
        plain: Array = weights @ right
        return plain
    total: Array = np.zeros((), weights.dtype)
    for inner in range(weights.shape[-1]):
        column = slice(inner, inner + 1)
        terms = weights[..., column] * right[..., column, :]
        at = column if read.shape[-1] > 1 else slice(None)
        total = total + np.where(read[..., at], terms, total.dtype.type(0))
    return total


class Attention(Operator):
    """NumPy body: all products of queries and keys in memory."""

    def __init__(self, prop: AttentionProperty) -> None:
        self.prop, self.parameters = prop, prop.parameters

    def forward(self, call: ForwardCall) -> None:
        """output and logsumexp, computed relative to the largest score, or the caches."""
        heads = self._heads(call)
        scores = heads.scores
        highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        shift = np.where(np.isneginf(highest), scores.dtype.type(0), highest)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            weights = np.exp(scores - shift)
            total = weights.sum(axis=-1, keepdims=True)
            divisor = np.where(total == 0, total.dtype.type(1), total)
            result = heads.product(weights, heads.value) / divisor
            logsumexp = shift + np.log(total)
        call.store(output=_joined(result))
        if not self.parameters.use_position:
            call.store(logsumexp=logsumexp.reshape(call.outputs.logsumexp.shape))

    def backward(self, call: BackwardCall) -> None:
        """Gradients of query, key and value, side by side if packed, and of the mask."""
        heads, sizes = self._heads(call), self._sizes(call)
        g = self._split(call.output_gradients.output, sizes.heads)
        with np.errstate(invalid="ignore", over="ignore"):
            p, s = self._probabilities(call, heads, g)
            if self.parameters.use_mask and call.is_requested("mask"):
                call.store(mask=_summed(s, call.inputs.mask.shape))
            s *= s.dtype.type(self.prop.scale_of(sizes))
            gradients = (
                heads.product(s, heads.key),
                heads.transposed_product(s, heads.query),
                heads.transposed_product(p, g),
            )
        results = list(map(_joined, gradients))
        if self.parameters.packed:
            call.store(data=np.concatenate(results, axis=-1))
        else:
            call.store(**dict(zip(PROJECTIONS, results, strict=True)))

    def _probabilities(self, call: BackwardCall, heads: _Heads, g: Array) -> tuple[Array, Array]:
        """Return the probabilities and the gradients of the scaled scores."""
        output = self._split(call.outputs.output, self._sizes(call).heads)
        logsumexp = call.outputs.logsumexp.reshape(*heads.query.shape[:-1], 1)
        zero = g.dtype.type(0)
        p = np.exp(heads.scores - np.where(np.isneginf(logsumexp), zero, logsumexp))
        p = np.where(heads.read, p, zero)
        inner = (g * output).sum(axis=-1, keepdims=True)
        return p, np.where(heads.read, p * (g @ heads.value.swapaxes(-1, -2) - inner), zero)

    def _sizes(self, call: OperatorCall) -> AttentionSizes:
        return self.prop.sizes([array.shape for array in call.inputs])

    def _split(self, array: Array, heads: int) -> Array:
        """Return a view [N, K, heads / K, T, size] of [N, T, heads * size]."""
        groups, (batch, steps, columns) = self.parameters.kv_heads, array.shape
        parts = array.reshape(batch, steps, groups, heads // groups, columns // heads)
        split: Array = parts.transpose(0, 2, 3, 1, 4)
        return split

    def _heads(self, call: OperatorCall) -> _Heads:
        """Return the heads and the scores, -inf for pairs that are not read."""
        sizes = self._sizes(call)
        if self.parameters.packed:
            parts = np.split(call.inputs.data, sizes.packed_places, axis=-1)
        else:
            parts = [call.inputs[name] for name in PROJECTIONS]
        query = self._split(parts[0], sizes.heads)
        key, value = (self._split(part, sizes.kv_heads) for part in parts[1:])
        if self.parameters.use_position:
            assert isinstance(call, ForwardCall)
            key, value = self._stored(call, sizes, key, value)
        with np.errstate(invalid="ignore", over="ignore"):
            scores = query @ key.swapaxes(-1, -2)
            scores *= scores.dtype.type(self.prop.scale_of(sizes))
            if self.parameters.use_mask:
                mask = call.inputs.mask
                shape = (sizes.batch, sizes.heads, *mask.shape[2:])
                scores += np.broadcast_to(mask, shape).reshape(scores.shape)
        read = self._read(call, sizes)
        scores = np.where(read, scores, scores.dtype.type(-np.inf))
        return _Heads(query=query, key=key, value=value, scores=scores, read=read)

    def _stored(
        self, call: ForwardCall, sizes: AttentionSizes, key: Array, value: Array
    ) -> tuple[Array, Array]:
        """Store keys and values [N, K, 1, T, size]; return those of all positions."""
        for name in CACHES:
            np.copyto(call.outputs[f"{name}_output"], call.auxiliary[name])
        keys, values = call.outputs.key_cache_output, call.outputs.value_cache_output
        at = given_position(call, sizes.queries, sizes.keys) + np.arange(sizes.queries)
        keys[:, :, at // BLOCK, :, at % BLOCK] = key[:, :, 0].transpose(2, 0, 1, 3)
        values[:, :, at] = value[:, :, 0]
        rows = keys.swapaxes(3, 4).reshape(*keys.shape[:2], 1, -1, sizes.head_size)
        return rows[..., : sizes.keys, :], values[:, :, None]

    def _read(self, call: OperatorCall, sizes: AttentionSizes) -> Array:
        """Return which keys are read, for [N, K, G, Tq, Tk]."""
        p, keys = self.parameters, np.arange(sizes.keys)
        read = np.ones((1, 1, 1, 1, sizes.keys), bool)
        first = given_position(call, sizes.queries, sizes.keys)
        if p.causal:
            read = read & (keys <= first + np.arange(sizes.queries)[:, None])
        elif p.use_position:
            read = read & (keys < first + sizes.queries)
        if self.parameters.use_lengths:
            read = read & (keys < call.inputs.lengths.reshape(-1, 1, 1, 1, 1))
        return read


def _summed(scores: Array, shape: Shape) -> Array:
    """Return [1 or N, 1 or heads, Tq, Tk] of [N, K, heads / K, Tq, Tk], summed where it is 1."""
    result = scores.reshape(len(scores), math.prod(scores.shape[1:3]), *shape[2:])
    for axis in (0, 1):
        if shape[axis] == 1:
            result = result.sum(axis=axis, keepdims=True)
    return result


def _joined(heads: Array) -> Array:
    """Return [N, T, heads * size] of [N, K, heads / K, T, size]."""
    rows = heads.transpose(0, 3, 1, 2, 4)
    joined: Array = rows.reshape(*rows.shape[:2], math.prod(rows.shape[2:]))
    return joined
