"""NumPy archives: arrays of equal length, one per input of the network."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field as Option
from pydantic import StringConstraints

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.params import Parameters, Positive
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.fields import Inputs
from mxrun.io.dataset.registry import register
from mxrun.io.files import user_path
from mxrun.io.formats.arrays import array_field
from mxrun.io.formats.npy import read_npz

Name = Annotated[str, StringConstraints(min_length=1)]


class NpzOptions(Parameters):
    """Path of the archive, names of its arrays and scale of bytes."""

    path: str = Option(
        min_length=1,
        description="The archive, as numpy.savez writes it. A relative path starts at the config's "
        "folder.",
        examples=["data.npz"],
    )
    arrays: dict[Name, Name] = Option(
        default={},
        description="Name of the array for each input of the network; default: the input's name.",
        examples=[{"data": "x_train", "label": "y_train"}],
    )
    scale: Positive = Option(default=1 / 255, description="Factor that converts bytes to values.")


@register("npz", NpzOptions, ("all",))
def read(options: NpzOptions, split: str, inputs: Inputs) -> Dataset:
    """Arrays [records, ...]; bytes are scaled, other numbers are converted to the input's dtype."""
    path = user_path(options.path)
    names = {name: options.arrays.get(name, name) for name in inputs}
    arrays = read_npz(path, tuple(dict.fromkeys(names.values())))
    lengths = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        problem = f"{path}: the arrays have different numbers of records, or none"
        got = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise UserError(Diagnostic(problem, None, "the same number in each, and at least one", got))
    if empty := [f"{name} {list(array.shape)}" for name, array in arrays.items() if not array.size]:
        problem = f"{path}: the records of an array are empty"
        raise UserError(Diagnostic(problem, None, "no axis of length 0", ", ".join(empty)))
    fields = {
        name: array_field(arrays[stored], spec, f"{path}: {stored}.npy", options.scale)
        for name, spec in inputs.items()
        for stored in (names[name],)
    }
    return Dataset("npz", fields, (), split)
