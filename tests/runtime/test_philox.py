"""Philox4x32-10 against the known answers of its authors, in NumPy and in compiled loops."""

import numpy as np
import pytest

from mxrun.codegen import philox
from mxrun.codegen.arguments import Arguments, Int32s, Integer
from mxrun.codegen.intrinsics import random_words, share
from mxrun.codegen.jit import native
from mxrun.device.cpu.call import TaskThreads
from mxrun.device.cpu.pooled_loop import PooledLoop
from mxrun.runtime.random import Stream

# Random123 1.14, tests/kat_vectors: counter, key, result of `philox4x32 10`.
KNOWN = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
KEYS = [0, 1, 0x7FFFFFFFFFFFFFFF, 1234567890123456789]


class Drawing(Arguments):
    target: Int32s
    count: Integer
    key: Integer
    step: Integer
    first: Integer


@native
def words_loop(call: Drawing) -> None:
    """target[4 * i ... 4 * i + 3] = the words of block `first + i`."""
    begin, end = share(call.count)
    for i in range(begin, end):
        one, two, three, four = random_words(call.key, call.step, call.first + i)
        call.target[4 * i] = np.uint32(one)
        call.target[4 * i + 1] = np.uint32(two)
        call.target[4 * i + 2] = np.uint32(three)
        call.target[4 * i + 3] = np.uint32(four)


def signed(word: int) -> int:
    """Return 64 bits as the int64 that a slot holds."""
    return word - (1 << 64) if word >> 63 else word


def compiled(key: int, step: int, first: int, count: int, threads: int = 1) -> np.ndarray:
    drawn = np.zeros(4 * count, np.uint32)
    arguments = Drawing(
        target=drawn,
        count=count,
        key=signed(key),
        step=signed(step),
        first=signed(first),
    )
    PooledLoop(words_loop, arguments, threads, TaskThreads(threads))()
    return drawn


def joined(low: int, high: int) -> int:
    return low | high << 32


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_R1_the_authors_known_answers(counter, key, expected):
    numbers = tuple(np.array([word], np.uint64) for word in counter)
    drawn = philox.blocks(joined(*key), numbers)
    assert tuple(int(words[0]) for words in drawn) == expected
    native_words = compiled(joined(*key), joined(*counter[2:]), joined(*counter[:2]), 1)
    assert tuple(native_words.tolist()) == expected


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("key", KEYS)
def test_R1_compiled_words_are_numpys_at_every_position_on_any_threads(key, threads):
    for step in (0, 1, 2**40 + 3):
        expected = philox.words(key, step, 4 * 1001)
        assert (compiled(key, step, 0, 1001, threads) == expected).all()


def test_words_are_prefixes_of_each_other_and_differ_by_key_and_step():
    words = philox.words(5, 7, 1000)
    assert words.dtype == np.uint32
    for count in (0, 1, 3, 4, 5, 999):
        assert (philox.words(5, 7, count) == words[:count]).all()
    assert (philox.words(6, 7, 1000) != words).mean() > 0.99
    assert (philox.words(5, 8, 1000) != words).mean() > 0.99
    assert (Stream(5, 7).bits(1000) == words).all()


def test_R1_the_words_are_uniform_and_uncorrelated():
    words = philox.words(99, 3, 1 << 18)
    counts = np.bincount(words >> 24, minlength=256)
    # chi-square with 255 degrees of freedom: 330.5 is its 0.1 % tail
    assert ((counts - 1024) ** 2 / 1024).sum() < 330.5
    uniform = words / 2.0**32
    for distance in (1, 2, 4):
        correlation = np.corrcoef(uniform[:-distance], uniform[distance:])[0, 1]
        assert abs(correlation) < 4 / np.sqrt(len(words))
