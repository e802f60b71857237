"""The messages between mxrun and a helper process."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from mxrun.peers.wire import Message, group, numbered, prefixed, read, write

_NUMBERS = st.sampled_from(["?", "u1", "i4", "i8", "f2", "f4", "f8", ">f4", ">i8"])
_SHAPES = arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def _sent(message: Message) -> io.BytesIO:
    stream = io.BytesIO()
    write(stream, message)
    stream.seek(0)
    return stream


@given(st.dictionaries(st.text(max_size=5), arrays_of.arrays(_NUMBERS.map(np.dtype), _SHAPES)))
def test_arrays_arrive_with_their_type_shape_and_bits(arrays):
    stream = _sent(Message({"request": "run"}, arrays))
    received = read(stream)
    assert received is not None
    assert list(received.arrays) == list(arrays)
    for name, array in arrays.items():
        native = array.astype(array.dtype.newbyteorder("="))
        assert received.arrays[name].dtype == native.dtype
        assert received.arrays[name].shape == native.shape
        assert received.arrays[name].tobytes() == native.tobytes()
    assert read(stream) is None


def test_strided_arrays_travel_row_major():
    array = np.arange(12.0).reshape(3, 4).T[::2]
    received = read(_sent(Message({}, {"a": array})))
    assert received is not None
    np.testing.assert_array_equal(received.arrays["a"], array)
    assert received.arrays["a"].flags.writeable


def test_fields_are_json_on_the_first_line():
    stream = _sent(Message({"steps": 3, "symbol": "line\nbreak"}, {"a": np.ones(2, np.float32)}))
    assert stream.readline().endswith(b'"arrays": [["a", "<f4", [2]]]}\n')
    assert stream.read() == np.ones(2, "<f4").tobytes()


def test_objects_are_refused():
    with pytest.raises(ValueError, match="'a' holds object"):
        write(io.BytesIO(), Message({}, {"a": np.array([None])}))


def test_a_message_cut_short_is_an_error():
    whole = _sent(Message({}, {"a": np.ones(4)})).getvalue()
    with pytest.raises(EOFError, match="'a' ends after 31 of 32 bytes"):
        read(io.BytesIO(whole[:-1]))


def test_groups_are_named_by_prefix():
    arrays = {**prefixed("inputs", {"a": np.ones(1)}), **prefixed("out", numbered([np.zeros(1)]))}
    assert list(arrays) == ["inputs/a", "out/0"]
    assert list(group(arrays, "inputs")) == ["a"]
    assert list(group(arrays, "out")) == ["0"]
