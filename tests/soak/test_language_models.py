"""Character models of the bundled configs on 1.1 MB of plays, of which the last tenth is held out.

The file is `tinyshakespeare.txt` in the folder that MXRUN_TEST_DATA names. By hand:

    mxrun train gpt_shakespeare data.train.path=tinyshakespeare.txt threads=2
    mxrun infer runs/gpt_shakespeare --prompt "ROMEO:" --length 56 --temperature 0.7 --seed 1
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import HANG_S, MXRUN, succeeded

pytestmark = pytest.mark.soak

WORD = re.compile(r"[A-Za-z']+")
# A model of 64 positions continues the prompt by so many characters, once with each seed.
PROMPT, LENGTH, SEEDS = "ROMEO:", 56, range(8)
# Least share of the written words that the text has. Of random letters with its frequencies, in
# words of its lengths, a twentieth are words of it; after 60 steps of training a sixth.
KNOWN = 0.6


@pytest.fixture
def plays() -> Path:
    """Path of the text."""
    folder = os.environ.get("MXRUN_TEST_DATA")
    path = None if folder is None else Path(folder).resolve() / "tinyshakespeare.txt"
    if path is None or not path.exists():
        pytest.skip("MXRUN_TEST_DATA does not name a folder with tinyshakespeare.txt")
    return path


def printed(*arguments: str) -> str:
    """Return what a command prints that takes minutes, or an hour beside other work."""
    done = subprocess.run(
        [*MXRUN, *arguments], capture_output=True, text=True, timeout=12 * HANG_S, check=False
    )
    return succeeded(done).stdout


@pytest.mark.parametrize(
    ("config", "nats", "steps"),
    [("gpt_shakespeare", 1.90, 2000), ("lstm_shakespeare", 2.0, 3000)],
)
def test_it_learns_to_write_plays(
    config: str,
    nats: float,
    steps: int,
    plays: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Held-out characters cost few nats, and most of the words that it writes are words."""
    trained = json.loads(
        printed("train", config, f"data.train.path={plays}", "threads=2", "--json")
    )
    loss = trained["eval"]["loss"]
    record_property("steps", trained["steps"])
    record_property("nats per held-out character", f"{loss:.3f}")
    assert trained["steps"] <= steps
    assert loss <= nats
    memory = trained["memory"]
    assert memory["planned_bytes"] == memory["touched_bytes"]
    vocabulary = set(WORD.findall(plays.read_text()))
    words = []
    for seed in SEEDS:
        asked = ("--prompt", PROMPT, "--length", str(LENGTH), "--temperature", "0.7")
        text = printed("infer", f"runs/{config}", *asked, "--seed", str(seed))
        assert len(text) >= LENGTH
        # The last word may not be complete.
        words += WORD.findall(text.removeprefix(PROMPT))[:-1]
    share = sum(word in vocabulary for word in words) / len(words)
    record_property("of the words written are in the text", f"{share:.0%}")
    assert share >= KNOWN
