"""_cached_attention: causal attention over the keys and values of earlier positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator
from typing_extensions import Self

from mxrun.base.params import Float32, Parameters
from mxrun.base.tensor import PartialShape, Shape
from mxrun.codegen.arguments import Arguments, Integer
from mxrun.operator.family import OperatorFamily
from mxrun.operator.incremental import POSITION
from mxrun.operator.operator import ForwardCall, Operator
from mxrun.operator.property import (
    GradientKind,
    OperatorProperty,
    PartialInference,
    PartialShapes,
    PartialType,
    Precision,
)
from mxrun.operator.register import register
from mxrun.operator.shape import ShapeContradiction, is_known, require_complete, show, unify

Array = npt.NDArray[Any]
Count = Annotated[int, Field(ge=1)]

# Positions whose keys are stored together, element by element: the lanes of a vector.
BLOCK = 16
PROJECTIONS = ("query", "key", "value")


class CachedAttentionParameters(Parameters):
    """Parameters of _cached_attention."""

    num_heads: Count = Field(description="Number of heads of the queries.", examples=[2])
    num_kv_heads: Count = Field(description="Number of heads of keys and values.", examples=[2])
    scale: Float32 = Field(description="Factor of the products of queries and keys.", examples=[1])
    packed: bool = Field(default=False, description="Read one tensor with all three side by side.")
    length: Count = Field(description="Number of positions that the caches hold.", examples=[16])

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads} is no multiple of num_kv_heads")
        return self


class CacheSizes(Arguments):
    """Sizes of attention over a cache.

    positions: number of positions that a run computes. groups: heads of keys and values, each of
    which `heads // groups` heads of queries read. size, value_size: elements of a head of queries
    and keys, and of values.
    """

    batch: Integer
    positions: Integer
    heads: Integer
    groups: Integer
    size: Integer
    value_size: Integer
    length: Integer

    @property
    def key_cache_shape(self) -> Shape:
        """Shape of the key cache: blocks of positions, each with one row for every element."""
        return (self.batch, self.groups, -(-self.length // BLOCK), self.size, BLOCK)

    @property
    def value_cache_shape(self) -> Shape:
        """Shape of the value cache."""
        return (self.batch, self.groups, self.length, self.value_size)


@register("_cached_attention")
class CachedAttentionProperty(OperatorProperty[CachedAttentionParameters]):
    """output = softmax(scale * query x keys^T) x values over the positions up to the query's own.

    query [N, T, num_heads * D], key [N, T, num_kv_heads * D], value [N, T, num_kv_heads * Dv], or
    data [N, T, (num_heads + 2 num_kv_heads) * D] with all three side by side; position [1], int32:
    the first of their T positions, the last of which is less than `length`; output [N, T, num_heads
    * Dv]. The keys and the values are first stored in the caches, at their positions, which also
    hold those of the earlier positions. The states key_cache
    [N, num_kv_heads, ceil(length / 16), D, 16] and value_cache [N, num_kv_heads, length, Dv] are
    overwritten by the hidden outputs of the same names; beside bfloat16 data they are bfloat16. No
    gradient.
    """

    type_string = "_cached_attention"
    family = OperatorFamily.DENSE
    parameter_type = CachedAttentionParameters
    precision = Precision.BFLOAT16
    reads_only_data = True
    is_internal = True

    def list_arguments(self) -> tuple[str, ...]:
        """query, key and value, or data; and the position."""
        return (*(("data",) if self.parameters.packed else PROJECTIONS), POSITION)

    def list_auxiliary_states(self) -> tuple[str, ...]:
        """The caches."""
        return ("key_cache", "value_cache")

    def list_outputs(self) -> tuple[str, ...]:
        """The output and the new caches."""
        return ("output", "key_cache_output", "value_cache_output")

    @property
    def num_visible_outputs(self) -> int:
        """1: the caches are hidden."""
        return 1

    def list_mutated_inputs(self) -> dict[int, int]:
        """The caches are overwritten."""
        first = len(self.list_arguments())
        return {first: 1, first + 1: 2}

    def infer_shape(self, inputs: PartialShapes, outputs: PartialShapes) -> PartialInference:
        """Infer the output and the caches from complete queries, keys and values."""
        *given, position = inputs
        position = unify(POSITION, position, (1,), "one number")
        rows: tuple[int | None, ...] = (None, None)
        for name, shape in zip(self.list_arguments(), given, strict=False):
            rows = unify(name, shape, (*rows, None), "the rows of the others")[:2]
        given = [
            self._projection(name, shape, rows)
            for name, shape in zip(self.list_arguments(), given, strict=False)
        ]
        if not all(map(is_known, given)):
            return PartialInference([*given, position], outputs, [None, None])
        shapes = [require_complete(shape) for shape in given]
        sizes = self.sizes(shapes)
        if len(shapes) > 1 and shapes[1][2] != sizes.groups * sizes.size:
            rule = f"{sizes.groups} heads of {sizes.size} columns"
            raise ShapeContradiction("key", show(shapes[1]), rule, "heads of the query")
        output: PartialShape = (sizes.batch, sizes.positions, sizes.heads * sizes.value_size)
        output = unify("output", outputs[0], output, "heads of the query and sizes of values")
        caches: list[PartialShape] = [
            unify("key_cache_output", outputs[1], sizes.key_cache_shape, "heads and length"),
            unify("value_cache_output", outputs[2], sizes.value_cache_shape, "heads and length"),
        ]
        return PartialInference([*given, position], [output, *caches], caches)

    def _projection(
        self, name: str, shape: PartialShape, rows: tuple[int | None, ...]
    ) -> PartialShape:
        """Return a projection's shape with the rows of all. Raises ShapeContradiction if its
        columns are no heads, and for more positions than the caches hold.
        """
        p = self.parameters
        shape = unify(name, shape, (*rows, None), "the rows of the others")
        heads = {"query": p.num_heads, "data": p.num_heads + 2 * p.num_kv_heads}
        count = heads.get(name, p.num_kv_heads)
        if shape[2] is not None and shape[2] % count:
            raise ShapeContradiction(name, show(shape), f"a multiple of {count} columns", "heads")
        if shape[1] is not None and shape[1] > p.length:
            raise ShapeContradiction(name, show(shape), f"at most {p.length} positions", "length")
        return shape

    def example_shapes(self, sample: Shape) -> PartialShapes:
        """Return the shapes of an example whose position may be 0 or 1."""
        if len(sample) != len("NTC"):
            return []
        p, (batch, positions, size) = self.parameters, sample
        heads = [p.num_heads, p.num_kv_heads, p.num_kv_heads]
        rows = (batch, min(positions, p.length - 1))
        return [*((*rows, each * size) for each in ([sum(heads)] if p.packed else heads)), (1,)]

    def infer_type(
        self, inputs: list[PartialType], outputs: list[PartialType]
    ) -> tuple[list[PartialType], list[PartialType]]:
        """All tensors have one dtype, but the position is int32."""
        common = next((dtype for dtype in (*inputs[:-1], *outputs) if dtype is not None), None)
        return [*[common] * len(inputs[:-1]), "int32"], [common] * len(outputs)

    def list_gradients(self) -> tuple[GradientKind, ...]:
        """No input has a gradient."""
        return (GradientKind.NONE,) * len(self.list_arguments())

    def sizes(self, shapes: Sequence[Shape]) -> CacheSizes:
        """Return the sizes; shapes: of query, key and value, or of data."""
        p, width = self.parameters, shapes[0][-1]
        if p.packed:
            size = value_size = width // (p.num_heads + 2 * p.num_kv_heads)
        else:
            size, value_size = width // p.num_heads, shapes[2][-1] // p.num_kv_heads
        batch, positions, _ = shapes[0]
        return CacheSizes(
            batch=batch,
            positions=positions,
            heads=p.num_heads,
            groups=p.num_kv_heads,
            size=size,
            value_size=value_size,
            length=p.length,
        )

    def flops(self, in_shapes: Sequence[Shape], out_shapes: Sequence[Shape]) -> int:
        """Two per multiply-add of both products over half of the positions, their mean number."""
        p, sizes = self.parameters, self.sizes(in_shapes)
        rows, columns = sizes.batch * sizes.positions, sizes.size + sizes.value_size
        flops: int = rows * p.num_heads * p.length * columns
        return flops

    def create_operator(self) -> Operator:
        """Create the NumPy body."""
        return CachedAttention(self)


class CachedAttention(Operator):
    """NumPy body."""

    def __init__(self, prop: CachedAttentionProperty) -> None:
        self.prop, self.parameters = prop, prop.parameters

    def forward(self, call: ForwardCall) -> None:
        """Store the keys and values; then each query attends to the positions up to its own."""
        *given, position = call.inputs
        sizes, first = self.prop.sizes([array.shape for array in given]), int(position[0])
        keys, values = self._stored(call, sizes, given, first)
        if not call.is_requested("output"):
            return
        query = self._parts(sizes, given)[0]
        shape = (sizes.batch, sizes.groups, sizes.heads // sizes.groups, sizes.size)
        results = []
        for row in range(sizes.positions):
            end = first + row + 1
            scores = np.einsum("nghd,ngdt->nght", query[:, row].reshape(shape), keys[..., :end])
            scores *= scores.dtype.type(self.parameters.scale)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            mixed = np.einsum("nght,ngtd->nghd", weights, values[:, :, :end])
            results.append(mixed.reshape(sizes.batch, -1))
        call.store(output=np.stack(results, axis=1))

    def _stored(
        self, call: ForwardCall, sizes: CacheSizes, given: Sequence[Array], first: int
    ) -> tuple[Array, Array]:
        """Store the keys and values; return all keys [N, G, D, L] and all values [N, G, L, Dv]."""
        keys, values = call.outputs.key_cache_output, call.outputs.value_cache_output
        np.copyto(keys, call.auxiliary.key_cache)
        np.copyto(values, call.auxiliary.value_cache)
        _, key, value = self._parts(sizes, given)
        for row in range(sizes.positions):
            t = first + row
            keys[:, :, t // BLOCK, :, t % BLOCK] = key[:, row].reshape(*keys.shape[:2], -1)
            values[:, :, t] = value[:, row].reshape(*values.shape[:2], -1)
        batch, groups, blocks, size, _ = keys.shape
        return keys.transpose(0, 1, 3, 2, 4).reshape(batch, groups, size, blocks * BLOCK), values

    def _parts(self, sizes: CacheSizes, given: Sequence[Array]) -> Sequence[Array]:
        """Return query, key and value."""
        if not self.parameters.packed:
            return given
        ends = (sizes.heads * sizes.size, (sizes.heads + sizes.groups) * sizes.size)
        return np.split(given[0], ends, axis=-1)
