"""Sizes and inference of the shapes of attention's tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mxrun.base.tensor import PartialShape, Shape
from mxrun.codegen.arguments import Arguments, Integer
from mxrun.operator.incremental import POSITION
from mxrun.operator.property import PartialInference, PartialShapes
from mxrun.operator.shape import Dimensions, ShapeContradiction, show, unify

# Positions whose keys are cached together, element by element: the lanes of a vector.
BLOCK = 16
_RULE = "the sizes of the other tensors"
# Letter of an axis whose size is known.
_ONE = "1"


class AttentionSizes(Arguments):
    """Sizes of attention: numbers of sequences, queries and keys of each, heads, and heads' sizes.

    keys: with a cache, those that it can hold. head_size: of queries and keys; value_size: of
    values.
    """

    batch: Integer
    queries: Integer
    keys: Integer
    heads: Integer
    kv_heads: Integer
    head_size: Integer
    value_size: Integer

    @staticmethod
    def of(
        projections: Sequence[Shape], heads: int, kv_heads: int, cached: int | None
    ) -> AttentionSizes:
        """Return the sizes for the shapes of query, key and value, or of data that packs them.

        cached: number of keys in the cache, if there is one.
        """
        batch, queries, columns = projections[0]
        if len(projections) == 1:
            keys, size = queries, columns // (heads + 2 * kv_heads)
            value_size = size
        else:
            _, keys, values = projections[2]
            size, value_size = columns // heads, values // kv_heads
        return AttentionSizes(
            batch=batch,
            queries=queries,
            keys=cached or keys,
            heads=heads,
            kv_heads=kv_heads,
            head_size=size,
            value_size=value_size,
        )

    @property
    def packed_places(self) -> tuple[int, int]:
        """Columns of packed data at which keys and values begin."""
        keys: int = self.heads * self.head_size
        return keys, keys + self.kv_heads * self.head_size


class SizeInference:
    """Sizes by letter, as far as they are known, for tensors whose axes are named by letters.

    An axis is a letter with a number, such as that of heads, that its size is a multiple of.
    """

    def __init__(self) -> None:
        self.sizes = {_ONE: 1}

    def read(self, name: str, shape: PartialShape, axes: Sequence[tuple[str, int]]) -> None:
        """Learn the sizes of a tensor's axes; raises ShapeContradiction if they disagree."""
        if shape is None:
            return
        known = unify(name, shape, (None,) * len(axes), "its number of axes")
        for size, (letter, heads) in zip(known, axes, strict=True):
            if size is None:
                continue
            if size % heads:
                raise ShapeContradiction(
                    name, show(shape), f"a multiple of {heads}", "the number of heads"
                )
            if self.sizes.setdefault(letter, size // heads) != size // heads:
                raise ShapeContradiction(name, show(shape), show(self.of(axes)), _RULE)

    def of(self, axes: Sequence[tuple[str, int]]) -> Dimensions:
        """Return the shape of a tensor as far as it is known."""
        return tuple(
            None if letter not in self.sizes else self.sizes[letter] * heads
            for letter, heads in axes
        )


def infer_shapes(
    names: Sequence[str],
    results: Sequence[str],
    inputs: PartialShapes,
    outputs: PartialShapes,
    heads: int,
    kv_heads: int,
    cached: int,
) -> PartialInference:
    """Complete the shapes of the arguments `names` and of the outputs `results`.

    cached: number of keys in the cache, if there is a position.
    """
    packed, blocks = names[0] == "data", math.ceil(cached / BLOCK)
    keys = "q" if packed or POSITION in names else "k"
    values = "d" if packed else "v"
    axes = {
        "data": [("n", 1), ("q", 1), ("d", heads + 2 * kv_heads)],
        "query": [("n", 1), ("q", 1), ("d", heads)],
        "key": [("n", 1), (keys, 1), ("d", kv_heads)],
        "value": [("n", 1), (keys, 1), (values, kv_heads)],
        "lengths": [("n", 1)],
        POSITION: [(_ONE, 1)],
        "output": [("n", 1), ("q", 1), (values, heads)],
        "logsumexp": [("n", 1), (_ONE, heads), ("q", 1)],
        "key_cache_output": [
            *(("n", 1), (_ONE, kv_heads), (_ONE, blocks)),
            *(("d", 1), (_ONE, BLOCK)),
        ],
        "value_cache_output": [("n", 1), (_ONE, kv_heads), (_ONE, cached), (values, 1)],
    }
    given = dict(zip((*names, *results), (*inputs, *outputs), strict=True))
    sizes = SizeInference()
    mask = given.pop("mask", None)
    for name, shape in given.items():
        sizes.read(name, shape, axes[name])
    mask = _mask(sizes, mask, keys, heads)
    found: dict[str, PartialShape] = {name: sizes.of(axes[name]) for name in given}
    found["mask"] = mask
    shapes = [found[name] for name in results]
    states = shapes[1:] if POSITION in names else []
    return PartialInference([found[name] for name in names], shapes, states)


def _mask(sizes: SizeInference, mask: PartialShape, keys: str, heads: int) -> PartialShape:
    """Learn from the mask [1 or N, 1 or heads, Tq, Tk], and complete it."""
    if mask is None:
        return None
    unify("mask", mask, (None,) * 4, "its number of axes")
    sizes.read("mask", mask[2:], [("q", 1), (keys, 1)])
    limits = (sizes.sizes.get("n"), heads)
    for size, limit in zip(mask, limits, strict=False):
        if None not in (size, limit) and size not in (1, limit):
            expected = f"[1 or {show((limits[0],))[1:-1]}, 1 or {heads}, ...]"
            raise ShapeContradiction("mask", show(mask), expected, "sequences and heads")
    return (*mask[:2], *sizes.of([("q", 1), (keys, 1)]))


def padded(size: int, multiple: int) -> int:
    """Return the smallest multiple that is not below a size."""
    return math.ceil(size / multiple) * multiple
