"""Free-list allocator of entire blocks, with which plans are compared."""

from __future__ import annotations

from mxrun.planner.allocator.free_list import free_list_bytes


def arena_bytes(*tensors: tuple[int, int, int], match_range: int = 16) -> int:
    """Tensors as size, first step and the step after the last."""
    sizes, first, last = zip(*tensors, strict=True)
    return free_list_bytes(sizes, first, last, match_range)


def test_a_freed_block_is_handed_on() -> None:
    assert arena_bytes((100, 0, 1), (100, 1, 2)) == 100
    assert arena_bytes((100, 0, 2), (100, 1, 2)) == 200
    assert free_list_bytes((), (), ()) == 0


def test_a_block_stays_as_large_as_it_was() -> None:
    """A block of 100 bytes serves a tensor of 80; the other 20 stay unused."""
    assert arena_bytes((100, 0, 1), (80, 1, 2), (20, 1, 2)) == 120


def test_the_smallest_that_is_large_enough_is_taken() -> None:
    """The tensor of 60 takes the block of 70, so that the one of 90 finds the block of 100."""
    assert arena_bytes((100, 0, 1), (70, 0, 1), (60, 1, 3), (90, 2, 3)) == 170


def test_else_the_largest_grows() -> None:
    assert arena_bytes((40, 0, 1), (70, 0, 1), (90, 1, 2)) == 40 + 90


def test_blocks_out_of_range_are_left() -> None:
    assert arena_bytes((1600, 0, 1), (100, 1, 2)) == 1600
    assert arena_bytes((1601, 0, 1), (100, 1, 2)) == 1701
    assert arena_bytes((100, 0, 1), (1600, 1, 2)) == 1600
    assert arena_bytes((99, 0, 1), (1600, 1, 2)) == 1699
    assert arena_bytes((300, 0, 1), (100, 1, 2), match_range=2) == 400


def test_what_one_step_writes_is_placed_by_falling_size() -> None:
    """In the other order the tensor of 50 would take the block of 100."""
    assert arena_bytes((100, 0, 1), (50, 1, 2), (100, 1, 2)) == 150
