"""NDArray: arrays whose operations run asynchronously on the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mxrun.base.context import Context
from mxrun.base.errors import Diagnostic, UserError
from mxrun.imperative.arrays import copying, dlpack, formatting, indexing
from mxrun.imperative.arrays.arithmetic import Arithmetic
from mxrun.imperative.arrays.array import NDArrayBase, set_array_class
from mxrun.imperative.arrays.creation import DType, dtype_name, empty
from mxrun.imperative.arrays.fluent import FluentMethods
from mxrun.imperative.arrays.views import part, require_unrecorded, reshaped, view
from mxrun.imperative.calls.functions import operator_function
from mxrun.imperative.differentiation import autograd

if TYPE_CHECKING:
    from typing_extensions import Self

_DETACH = "use x.detach(), or autograd.pause(), if no gradient is needed"
_COMPOSE = f"make a new array with nd.concat, nd.stack or nd.where; {_DETACH}"
_PAUSE = "use a new array, or autograd.pause()"


class NDArray(Arithmetic, FluentMethods):
    """Array on a device; operations return at once, and reading values waits for them.

    Made by `mxrun.nd.array`, `zeros` and other functions, and by every operation. Results of
    `reshape` and of indices that select contiguous elements share the memory of the array.
    """

    __slots__ = ()

    # -- description -----------------------------------------------------------------------------

    @property
    def ctx(self) -> Context:
        """Device that holds the array."""
        return self.context

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def stype(self) -> str:
        """Storage type: always `default`, which is dense."""
        return "default"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __repr__(self) -> str:
        return formatting.text(self)

    def _repr_html_(self) -> str:
        return formatting.html_text(self)

    # -- values ----------------------------------------------------------------------------------

    def asscalar(self) -> Any:
        """Return the value of an array of one element, as NumPy's number; else ValueError."""
        if self.size != 1:
            raise ValueError("The current array is not a scalar")
        return self.asnumpy().reshape(-1)[0]

    def item(self) -> Any:
        """Return the value of an array of one element as Python's number; else ValueError."""
        return self.asscalar().item()

    def tolist(self) -> Any:
        """Return the values as nested lists of Python's numbers."""
        return self.asnumpy().tolist()

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError("The truth value of an NDArray with multiple elements is ambiguous.")
        return bool(self.size and self.asscalar())

    def __float__(self) -> float:
        return float(self.asscalar())

    def __int__(self) -> int:
        return int(self.asscalar())

    def __index__(self) -> int:
        if self.dtype.startswith("float"):
            raise TypeError(f"an array of {self.dtype} is not an integer")
        return int(self.asscalar())

    def __iter__(self) -> Iterator[Self]:
        return (self[index] for index in range(len(self)))

    def __array__(self, dtype: DType = None, copy: bool | None = None) -> Any:
        if copy is False:
            raise ValueError("np.asarray copies an NDArray; np.from_dlpack(x) shares its memory")
        values = self.asnumpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule with the array's memory, after waiting for all its users."""
        return dlpack.to_dlpack(
            self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.dlpack_device(self)

    def __reduce__(self) -> Any:
        raise TypeError("arrays cannot be pickled; mxrun.nd.save writes them to a file")

    # -- copies ----------------------------------------------------------------------------------

    def copy(self) -> Self:
        """Return a copy on the same context."""
        result: Self = operator_function("_copy")(self)
        return result

    def __copy__(self) -> Self:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.copy()

    def copyto(self, other: NDArrayBase | Context) -> Any:
        """Copy to an array of the same shape, or to a new one on a context; return that array."""
        require_unrecorded(self, "a copy to another array", _DETACH)
        if isinstance(other, NDArrayBase):
            require_unrecorded(other, "changing an array", _PAUSE)
            copying.copy_to(self, other)
            return other
        if not isinstance(other, Context):
            raise TypeError(f"copyto: expected an NDArray or a context, got {type(other).__name__}")
        target = empty(self.shape, other, self.dtype)
        copying.copy_to(self, target)
        return target

    def as_in_context(self, context: Context) -> Self:
        """Return the array itself if it is on the context, else a copy there."""
        if context == self.context:
            return self
        result: Self = self.copyto(context)
        return result

    def astype(self, dtype: DType, copy: bool = True) -> Self:
        """Return the array converted to a data type; itself if it has it and copy is false."""
        name = dtype_name(dtype)
        if name == self.dtype and not copy:
            return self
        result: Self = operator_function("Cast")(self, dtype=name)
        return result

    def tostype(self, stype: str) -> Self:
        """Return a copy in a storage type, of which there is one: `default`."""
        if stype != "default":
            raise UserError(Diagnostic("tostype", expected="default", got=repr(stype)))
        return self.copy()

    # -- gradients -------------------------------------------------------------------------------

    def attach_grad(self, grad_req: str = "write") -> None:
        """Make the array a variable whose gradient `backward` stores in `grad`.

        grad_req: `write`, `add` or `null`. Raises UserError for another one.
        """
        autograd.attach_grad(self, grad_req)

    def backward(
        self,
        out_grad: NDArrayBase | None = None,
        retain_graph: bool = False,
        train_mode: bool = True,
    ) -> None:
        """Compute the gradients of the variables that the recorded array depends on.

        out_grad: the array's own gradient; ones unless given. Raises UserError as
        `autograd.backward` does.
        """
        autograd.backward(self, out_grad, retain_graph, train_mode)

    def detach(self) -> Self:
        """Return an array that shares the memory and is not part of a recorded graph."""
        result: Self = view(self, self.shape, self.offset)
        return result

    # -- shapes ----------------------------------------------------------------------------------

    def reshape(self, *shape: Any, **keywords: Any) -> Self:
        """Return the elements in row-major order in another shape, which shares the memory.

        Sizes are integers or one tuple. As in MXNet's Reshape, 0 keeps a size, -1 follows from the
        others, -2 copies all further sizes, -3 joins two and -4 splits one; `reverse=True` reads
        them from the right. Raises UserError if the number of elements differs.
        """
        given = keywords.pop("shape", shape)
        reverse = bool(keywords.pop("reverse", False))
        if keywords:
            raise TypeError(f"reshape has no parameter {next(iter(keywords))!r}")
        if len(given) == 1 and isinstance(given[0], (tuple, list)):
            given = given[0]
        result: Self = reshaped(self, tuple(given), reverse)
        return result

    def reshape_like(self, other: NDArrayBase) -> Self:
        """Return the elements in the shape of another array, which shares the memory."""
        result: Self = reshaped(self, other.shape, False)
        return result

    def transpose(self, *axes: Any) -> Self:
        """Return a copy with the axes permuted, reversed unless given."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        result: Self = operator_function("transpose")(self, axes=tuple(order or ()))
        return result

    @property
    def T(self) -> Self:  # noqa: N802
        """Copy with the axes reversed."""
        return self.transpose()

    # -- indices ---------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Self:
        result: Self
        if indexing.is_basic(key):
            selection = indexing.select(self.shape, key)
            result = part(self, selection)
        else:
            require_unrecorded(self, "an index with arrays", _DETACH)
            gather = indexing.gather_key(self, key)
            result = copying.copied_selection(self, gather, gather.shape)
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        require_unrecorded(self, "changing an array", _PAUSE)
        if isinstance(value, NDArrayBase):
            require_unrecorded(value, "assigning an array to a part of another one", _COMPOSE)
        if not indexing.is_basic(key):
            gather = indexing.gather_key(self, key)
            copying.assign(self, gather, value, gather.shape)
            return
        selection = indexing.select(self.shape, key)
        copying.assign(self, selection.key, value, selection.selected)


set_array_class(NDArray)
