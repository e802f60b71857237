"""Exchange of arrays: NumPy's protocols, DLPack, files, contexts and copies."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mxrun
from mxrun import nd
from mxrun.base.errors import UserError
from mxrun.imperative.arrays.ndarray import NDArray

DTYPES = ("float32", "float64", "float16", "uint8", "int8", "int32", "int64")


def special(dtype: str) -> Any:
    """Numbers with distinctive bits: NaN, infinities, both zeros, the smallest and the largest."""
    if dtype.startswith("float"):
        info = np.finfo(dtype)
        listed = [np.nan, np.inf, -np.inf, 0.0, -0.0, info.tiny, info.max, 1 / 3]
        return np.array(listed, dtype).reshape(2, 4)
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.max, 0, 7], dtype).reshape(2, 2)


def same_bits(array: Any, values: Any) -> None:
    got = array.asnumpy()
    assert (got.dtype, got.shape) == (values.dtype, values.shape)
    assert got.tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_N3_files_and_copies_keep_every_bit(dtype: str, tmp_path: Path) -> None:
    values = special(dtype)
    x = nd.array(values, dtype=dtype)
    nd.save(tmp_path / "one.safetensors", {"x": x, "row": x[1], "none": nd.zeros((0, 3))})
    loaded = nd.load(tmp_path / "one.safetensors")
    assert sorted(loaded) == ["none", "row", "x"]
    same_bits(loaded["x"], values)
    same_bits(loaded["row"], values[1])
    assert loaded["none"].shape == (0, 3)
    nd.save(str(tmp_path / "list"), [x, x[0]])
    listed = nd.load(str(tmp_path / "list"), ctx=mxrun.cpu(1))
    assert isinstance(listed, list)
    assert {each.context for each in listed} == {mxrun.cpu(1)}
    same_bits(listed[0], values)
    same_bits(listed[1], values[0])
    other = x.as_in_context(mxrun.cpu(1))
    assert other.context == mxrun.cpu(1)
    same_bits(other, values)
    same_bits(other.copyto(nd.empty(values.shape, dtype=dtype)), values)
    same_bits(x.copyto(mxrun.Context("reference")).copyto(mxrun.cpu()), values)
    for copied in (x.copy(), copy.copy(x), copy.deepcopy(x), nd.array(x)):
        assert copied.chunk is not x.chunk
        same_bits(copied, values)


def test_N3_other_programs_read_the_files(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    nd.save(tmp_path / "a", {"w": nd.arange(6).reshape(2, 3)})
    np.testing.assert_array_equal(load_file(tmp_path / "a")["w"], [[0, 1, 2], [3, 4, 5]])
    save_file({"v": np.arange(3)}, tmp_path / "b")
    same_bits(nd.load(tmp_path / "b")["v"], np.arange(3))


def header(entries: Any, body: bytes = b"") -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text + body


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HOSTILE = {
    "empty": b"",
    "short": b"\x10\0\0",
    "a huge header": (1 << 62).to_bytes(8, "little") + b"{}",
    "no JSON": header(b"{]"),
    "deep JSON": header(b"[" * 100_000),
    "a list": header([1, 2]),
    "offsets behind the end": header({"x": ENTRY}, b"1234"),
    "a huge shape": header({"x": {**ENTRY, "shape": [1 << 60, 1 << 60]}}, b"12345678"),
    "a negative size": header({"x": {**ENTRY, "shape": [-2]}}, b"12345678"),
    "another size": header({"x": {**ENTRY, "shape": [3]}}, b"12345678"),
    "an unknown type": header({"x": {**ENTRY, "dtype": "F33"}}, b"12345678"),
    "a type without arrays": header({"x": {**ENTRY, "dtype": "U64", "shape": [1]}}, b"12345678"),
    "overlapping arrays": header({"x": ENTRY, "y": ENTRY}, b"12345678"),
    "bytes behind the end": header({"x": ENTRY}, b"123456789012"),
    "a pickle": pickle.dumps({"x": [1.0]}),
    "an MXNet file": (0x112).to_bytes(8, "little") + bytes(100),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_N3_hostile_files_are_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(HOSTILE[kind])
    with pytest.raises(UserError, match=r"cannot load .*hostile"):
        nd.load(path)


def test_N3_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot load"):
        nd.load(tmp_path / "missing")
    with pytest.raises(UserError, match="cannot load"):
        nd.load(tmp_path)
    with pytest.raises(UserError):
        nd.save(tmp_path / "no" / "folder", nd.ones((1,)))
    for data in (5, [np.ones(2)], {"x": 1}, {1: nd.ones((1,))}):
        with pytest.raises(UserError, match="an NDArray, a list"):
            nd.save(tmp_path / "x", data)
    assert not (tmp_path / "x").exists()


def test_arrays_are_not_pickled() -> None:
    with pytest.raises(TypeError, match=r"mxrun\.nd\.save"):
        pickle.dumps(nd.ones((2,)))


# -- NumPy ---------------------------------------------------------------------------------------


def test_numpy_takes_copies() -> None:
    x = nd.array([[1, 2], [3, 4]])
    values = np.asarray(x)
    values[:] = 0
    assert np.asarray(x, dtype="int64").tolist() == [[1, 2], [3, 4]]
    assert x.__array__("float64").dtype == np.float64
    with pytest.raises(ValueError, match="from_dlpack"):
        x.__array__(copy=False)
    assert nd.array([x[0], x[1]]).asnumpy().tolist() == [[1, 2], [3, 4]]
    for operation in (lambda: np.ones(2) + x, lambda: x + np.ones(2), lambda: x == np.ones(2)):
        with pytest.raises(TypeError):
            operation()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_shares_memory_with_numpy(dtype: str) -> None:
    x = nd.array(special(dtype), dtype=dtype)
    assert x.__dlpack_device__() == (1, 0)
    part = np.from_dlpack(x[1])
    assert part.tobytes() == special(dtype)[1].tobytes()
    x[1, 0] = 3
    x.wait_to_read()
    assert part[0] == 3
    values = np.arange(6).astype(dtype).reshape(2, 3)
    y = nd.from_dlpack(values)
    y += 1
    y.wait_to_read()
    np.testing.assert_array_equal(values, np.arange(1, 7).reshape(2, 3))
    same_bits(y, values)


@pytest.mark.full
def test_dlpack_keeps_the_memory_alive() -> None:
    view = np.from_dlpack(nd.full((1000,), 7))
    gc.collect()
    others = [nd.zeros((1000,)) for _ in range(4)]
    nd.waitall()
    assert (view == 7).all()
    del others
    borrowed = nd.from_dlpack(np.full(1000, 5, "float32"))
    result = borrowed * 2
    del borrowed
    gc.collect()
    assert (result.asnumpy() == 10).all()


def test_dlpack_waits_for_what_was_pushed() -> None:
    x = nd.zeros((300, 300))
    for _ in range(20):
        x += 1
    assert (np.from_dlpack(x) == 20).all()


def test_dlpack_copies_what_it_cannot_share() -> None:
    values = np.arange(12, dtype="float32").reshape(3, 4)
    x = nd.from_dlpack(values[:, ::2])
    x[:] = 0
    assert values[0, 2] == 2
    with pytest.raises(UserError, match="uint16"):
        nd.from_dlpack(np.ones(2, "uint16"))
    on_reference = nd.from_dlpack(values, ctx=mxrun.Context("reference"))
    assert on_reference.context.kind == "reference"


def test_an_unaligned_tensor_of_another_library_is_computed_with() -> None:
    memory = np.arange(101, dtype="float32")
    x = nd.from_dlpack(memory[1:])
    want = memory[1:] * 2 + memory[1:]
    np.testing.assert_array_equal((x * 2 + x).asnumpy(), want)
    square = nd.from_dlpack(memory[1:].reshape(10, 10))
    want = square.asnumpy() @ square.asnumpy()
    np.testing.assert_allclose(nd.dot(square, square).asnumpy(), want)


_TORCH = """
import numpy as np, torch
from mxrun import nd
x = nd.arange(6).reshape(2, 3)
t = torch.from_dlpack(x)
assert t.tolist() == [[0, 1, 2], [3, 4, 5]]
t += 1
assert x.asnumpy().tolist() == [[1, 2, 3], [4, 5, 6]]
u = torch.full((4,), 2.0)
y = nd.from_dlpack(u)
y *= 3
y.wait_to_read()
assert u.tolist() == [6.0] * 4
"""


def test_dlpack_shares_memory_with_pytorch() -> None:
    interpreter = os.environ.get("MXRUN_TORCH_PYTHON")
    if interpreter is None:
        pytest.skip("MXRUN_TORCH_PYTHON does not name a Python that has PyTorch")
    paths = [str(Path(mxrun.__file__).parents[1]), *_site_packages()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([interpreter, "-c", _TORCH], check=True, env=environment)


def _site_packages() -> list[str]:
    return [str(Path(np.__file__).parents[1])]


# -- representations -----------------------------------------------------------------------------


def test_representations_are_mxnets() -> None:
    x = nd.array([[1, 2, 3], [4, 5, 6]])
    assert repr(x) == "\n[[1. 2. 3.]\n [4. 5. 6.]]\n<NDArray 2x3 @cpu:0>"
    assert repr(nd.array(3.5, ctx=mxrun.cpu(1))) == "\n3.5\n<NDArray  @cpu:1>"
    assert "&lt;NDArray 2x3 @cpu:0&gt; float32" in x._repr_html_()
    assert "[4. 5. 6.]" in x._repr_html_()


def test_descriptions() -> None:
    x = nd.zeros((2, 3), dtype=np.float16)
    assert (x.shape, x.size, x.ndim, x.dtype, x.stype) == ((2, 3), 6, 2, "float16", "default")
    assert x.context == x.ctx == mxrun.cpu(0) == mxrun.current_context()
    assert len(x) == 2
    assert x.tostype("default").shape == (2, 3)
    with pytest.raises(UserError, match="row_sparse"):
        x.tostype("row_sparse")
    with pytest.raises(TypeError):
        len(nd.array(1))


def test_numbers_of_arrays() -> None:
    one = nd.array([2.5])
    assert (float(one), int(one), one.asscalar(), one.item()) == (2.5, 2, np.float32(2.5), 2.5)
    assert [10, 20, 30][nd.array([1], dtype="int32")] == 20
    assert bool(nd.array([1]))
    assert not bool(nd.array([0]))
    assert nd.array([[1, 2]]).tolist() == [[1.0, 2.0]]
    assert [each.item() for each in nd.arange(3)] == [0, 1, 2]
    many = nd.ones((2,))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(many)
    with pytest.raises(ValueError, match="not a scalar"):
        many.asscalar()
    with pytest.raises(TypeError):
        [1, 2][one]
    with pytest.raises(TypeError, match="NoneType"):
        _ = many == None  # noqa: E711
    assert len({one, many, one}) == 2


def test_contexts_of_new_arrays() -> None:
    with mxrun.cpu(1):
        x = nd.ones((2,))
        with mxrun.cpu(0):
            assert nd.zeros((1,)).context == mxrun.cpu(0)
        assert nd.array([1]).context == nd.random.uniform().context == mxrun.cpu(1)
    assert nd.ones((2,)).context == mxrun.cpu(0)
    assert (x + 1).context == mxrun.cpu(1)
    with pytest.raises(UserError, match="several devices"):
        x + nd.ones((2,))
    assert isinstance(nd.ones((2,), ctx=mxrun.cpu(1)), NDArray)


@pytest.mark.parametrize("value", ["a", 1.5, None])
def test_a_seed_is_an_integer(value: Any) -> None:
    with pytest.raises(UserError, match=r"seed\n.*expected: an integer"):
        mxrun.random.seed(value)
    mxrun.random.seed(np.int64(3))  # type: ignore[arg-type]


def test_random_numbers_follow_from_the_seed() -> None:
    def drawn() -> list[Any]:
        mxrun.random.seed(3)
        return [
            nd.random.uniform(-1, 1, (3, 5)).asnumpy(),
            nd.random.normal(2, 0.5, 100_000).asnumpy(),
            nd.random.randn(2, 2, ctx=mxrun.cpu(1)).asnumpy(),
            nd.random.uniform(out=nd.zeros((4,))).asnumpy(),
        ]

    first, second = drawn(), drawn()
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    assert (np.abs(first[0]) <= 1).all()
    assert abs(first[1].mean() - 2) < 0.01
    assert abs(first[1].std() - 0.5) < 0.01
    assert not np.array_equal(nd.random.uniform(shape=9).asnumpy(), first[0].reshape(-1)[:9])
