"""Random streams: a function of seed and name, with the distributions they promise."""

import hashlib
import math

import numpy as np
import pytest

from mxrun.runtime import random

MASK = (1 << 64) - 1


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x64-10 from the paper's definition, on Python integers."""
    x, (k0, k1) = list(counter), key
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * x[0], 0xCA5A826395121157 * x[2]
        x = [(second >> 64) ^ x[1] ^ k0, second & MASK, (first >> 64) ^ x[3] ^ k1, first & MASK]
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & MASK, (k1 + 0xBB67AE8584CAA73B) & MASK
    return x


def test_raw_words_are_philox_under_the_hashed_key():
    digest = hashlib.sha256(b"7/conv1_weight").digest()
    key = [int.from_bytes(digest[i : i + 8], "little") for i in (0, 8)]
    # NumPy steps the counter before it draws: the first block has counter 1.
    expected = philox([1, 0, 0, 0], key) + philox([2, 0, 0, 0], key)
    assert random.raw(7, "conv1_weight", 8).tolist() == expected


def test_streams_differ_by_seed_and_by_name_and_are_prefixes_of_themselves():
    base = random.raw(0, "a", 4).tolist()
    assert random.raw(0, "a", 9).tolist()[:4] == base
    assert random.raw(1, "a", 4).tolist() != base
    assert random.raw(0, "b", 4).tolist() != base


def test_uniform_is_exact_in_the_half_open_interval():
    values = random.uniform(3, "u", (50, 40, 30))
    words = random.raw(3, "u", 60000)
    assert values.shape == (50, 40, 30)
    assert values.ravel()[:100].tolist() == [int(w) // 2048 / 2**53 for w in words[:100]]
    assert values.min() >= 0
    assert values.max() < 1
    counts = np.histogram(values, 20, (0, 1))[0]
    # chi-square with 19 degrees of freedom: 43.8 is its 0.1 % tail
    assert ((counts - 3000) ** 2 / 3000).sum() < 43.8


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5)])
def test_normal_is_box_muller_of_the_uniforms(shape):
    count = math.prod(shape)
    pairs = (count + 1) // 2
    u = random.uniform(5, "n", (2 * pairs,))
    expected = [
        math.sqrt(-2 * math.log(1 - u[i])) * math.cos(2 * math.pi * u[pairs + i])
        for i in range(pairs)
    ]
    expected += [
        math.sqrt(-2 * math.log(1 - u[i])) * math.sin(2 * math.pi * u[pairs + i])
        for i in range(pairs)
    ]
    values = random.normal(5, "n", shape)
    assert values.shape == shape
    np.testing.assert_allclose(values.ravel(), expected[:count], rtol=1e-13)


def test_normal_has_the_moments_and_quantiles_of_the_standard_normal():
    values = random.normal(11, "moments", (200_000,))
    assert abs(values.mean()) < 4 / math.sqrt(200_000)
    assert abs(values.std() - 1) < 4 / math.sqrt(400_000)
    for z in (-2.0, -1.0, 0.0, 1.0, 2.0):
        share = 0.5 * (1 + math.erf(z / math.sqrt(2)))
        assert abs((values < z).mean() - share) < 4 * math.sqrt(share * (1 - share) / 200_000)


def test_permutation_is_uniform_over_orders():
    seen = [tuple(random.permutation(seed, "p", 4).tolist()) for seed in range(2400)]
    assert {tuple(sorted(order)) for order in seen} == {(0, 1, 2, 3)}
    counts = np.array([seen.count(order) for order in sorted(set(seen))])
    assert len(counts) == 24
    # chi-square with 23 degrees of freedom: 49.7 is its 0.1 % tail
    assert ((counts - 100) ** 2 / 100).sum() < 49.7


@pytest.mark.parametrize("draw", [random.uniform, random.normal])
def test_a_scalar_shape_gives_an_array(draw):
    values = draw(0, "scalar", ())
    assert isinstance(values, np.ndarray)
    assert (values.shape, values.dtype) == ((), np.float64)
