"""Files of arrays: what cannot be an array is refused."""

from __future__ import annotations

import json

import pytest

from mxrun.base.array_file import UnreadableArrays, parse_arrays


def test_arrays_of_too_many_axes_are_refused() -> None:
    about = {"dtype": "F32", "shape": [2] + [1] * 99, "data_offsets": [0, 8]}
    header = json.dumps({"weight": about}).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(8)
    with pytest.raises(UnreadableArrays, match="too many axes of 'weight'"):
        parse_arrays(content)
