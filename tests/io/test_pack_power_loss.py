"""Losses of power at any moment of a pack: the same command completes it to the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from commands import mxrun
from PIL import Image
from power_loss import Call, Crash, Tree, crashes, final_tree, record, tree_of, write_tree
from preloaded import compile_library
from recorded_runs import folder_in_memory

# More records than are packed between two commits.
COUNT = 600
KINDS = ("bird", "cat", "fish")
PACK = ("pack", "../images", "set/set.rec", "--shards", "3")


class Pack:
    """Pack of 600 images of noise in three classes, and its recorded calls."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        draws = np.random.default_rng(0)
        for number in range(COUNT):
            path = folder / "images" / KINDS[number % 3] / f"{number:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draws.integers(0, 256, (2, 2, 3), np.uint8)).save(path)
        library = compile_library(folder, "recorded_files")
        self.calls: Sequence[Call] = record(
            library, self.root, "-m", "mxrun", *PACK, trace=folder / "trace"
        )
        self.after: Tree = tree_of(self.root)
        assert final_tree({}, self.calls) == self.after

    def crashes(self) -> list[Crash]:
        """Return the states of the disk after a loss of power."""
        return list(crashes({}, self.calls, 1))

    def go_on(self, crash: Crash) -> None:
        """Pack once more; assert that the files are the same, as they may be already."""
        write_tree(self.root, crash.tree)
        done = mxrun(*PACK, cwd=self.root)
        assert done.returncode in (0, 2), done.stderr
        left = tree_of(self.root)
        if done.returncode == 2:
            assert "exists already" in done.stderr
            assert crash.call >= len(self.calls) - 40
            left = {path: left[path] for path in left if "/." not in path}
        assert left == self.after, crash.call


@pytest.fixture(scope="module")
def recorded() -> Iterator[Pack]:
    with folder_in_memory() as folder:
        yield Pack(folder)


@pytest.mark.full
def test_F5_a_pack_goes_on_to_the_same_bytes(recorded: Pack) -> None:
    found = recorded.crashes()
    for crash in found[:: len(found) // 5]:
        recorded.go_on(crash)


@pytest.mark.full
def test_F5_a_pack_goes_on_to_the_same_bytes_from_many_states(recorded: Pack) -> None:
    found = recorded.crashes()
    # The last calls are those of the publication, where names and contents must be in order.
    late = [crash for crash in found if crash.call > len(recorded.calls) - 60]
    for crash in (*found[:: len(found) // 40], *late[:: max(1, len(late) // 40)]):
        recorded.go_on(crash)


def test_F5_a_published_pack_is_whole(recorded: Pack) -> None:
    """Files that have their names and no hidden folder beside them have all their bytes."""
    for crash in recorded.crashes():
        tree = crash.tree
        if not any("/." in path for path in tree) and "set/set-00002.rec" in tree:
            assert tree == recorded.after, crash.call
        elif crash.call == len(recorded.calls):
            files = {path: tree.get(path) for path in recorded.after}
            assert files == recorded.after
