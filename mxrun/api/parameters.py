"""Parameters of a model as a mapping from names to NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mxrun.api.html import heading, section, table
from mxrun.base.dtype import numpy_dtype
from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import nearest
from mxrun.base.tensor import TensorSpec

Array = npt.NDArray[Any]


class ModelParameters(Mapping[str, Array]):
    """Parameters and auxiliary states of a model by name, in the network's order.

    Reading gives a read-only copy; assigning an array of the same shape changes the model. `fit`
    then starts from the assigned values, and `predict` uses them.
    """

    def __init__(
        self,
        specs: Mapping[str, TensorSpec],
        read: Callable[[], Mapping[str, Array]],
        assign: Callable[[str, Array], None],
    ) -> None:
        self._specs, self._read, self._assign = specs, read, assign

    def __getitem__(self, name: str) -> Array:
        """Return a copy of an array; it is read-only, because writing to it would change nothing.

        Raises KeyError for a name that the network does not have.
        """
        if name not in self._specs:
            raise KeyError(self._unknown(name))
        copied = np.array(self._read()[name])
        copied.flags.writeable = False
        return copied

    def __setitem__(self, name: str, value: npt.ArrayLike) -> None:
        """Replace the values of an array, converted to its dtype.

        Raises KeyError for an unknown name and UserError for another shape, for values that are no
        numbers, and for values that are not finite.
        """
        if name not in self._specs:
            raise KeyError(self._unknown(name))
        spec, given = self._specs[name], np.asarray(value)
        got = f"{given.dtype.name}{list(given.shape)}"
        if given.shape != spec.shape or given.dtype.kind not in "fiub":
            expected = f"numbers in the shape {list(spec.shape)}"
            raise UserError(Diagnostic(f"{name} cannot be assigned", None, expected, got))
        converted = given.astype(numpy_dtype(spec.dtype))
        if not np.isfinite(converted).all():
            problem = f"{name} cannot be assigned: a value is not finite in {spec.dtype}"
            raise UserError(Diagnostic(problem, None, "finite numbers", got))
        self._assign(name, converted)

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def __repr__(self) -> str:
        total = sum(spec.elements for spec in self._specs.values())
        return f"<ModelParameters: {len(self)} arrays, {total:,} numbers>"

    def _repr_html_(self) -> str:
        rows = [
            (name, "x".join(map(str, spec.shape)) or "scalar", spec.dtype, spec.elements)
            for name, spec in self._specs.items()
        ]
        return section(heading(repr(self)[1:-1]), table(("name", "shape", "type", "numbers"), rows))

    def _unknown(self, name: str) -> str:
        hint = nearest(name, self._specs)
        return f"the network has no parameter {name!r}" + (f"; {hint}" if hint else "")
