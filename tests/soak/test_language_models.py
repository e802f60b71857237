"""Character models of the bundled configs on 1.1 MB of plays, of which the last tenth is held out.

The file is `tinyshakespeare.txt` in the folder that MXRUN_TEST_DATA names. By hand:

    mxrun train gpt_shakespeare data.train.path=tinyshakespeare.txt threads=2
    mxrun infer runs/gpt_shakespeare --prompt "ROMEO:" --length 400 --seed 1
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import mxrun as command
from commands import result, succeeded

pytestmark = pytest.mark.soak

FIELDS = ("loss", "steps")
WORD = re.compile(r"[A-Za-z']+")
# Characters that are generated, and the share of their words that the text must have. Of random
# letters with its frequencies, in words of its lengths, a twentieth are words of it.
LENGTH, KNOWN = 1000, 0.75


@pytest.fixture
def plays() -> Path:
    """Path of the text."""
    folder = os.environ.get("MXRUN_TEST_DATA")
    path = None if folder is None else Path(folder).resolve() / "tinyshakespeare.txt"
    if path is None or not path.exists():
        pytest.skip("MXRUN_TEST_DATA does not name a folder with tinyshakespeare.txt")
    return path


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
    trained = result("train", config, f"data.train.path={plays}", "threads=2")
    loss = trained["eval"]["loss"]
    record_property("steps", trained["steps"])
    record_property("nats per held-out character", f"{loss:.3f}")
    assert trained["steps"] <= steps
    assert loss <= nats
    memory = trained["memory"]
    assert memory["planned_bytes"] == memory["touched_bytes"]
    asked = ("--prompt", "ROMEO:", "--length", str(LENGTH), "--seed", "1")
    written = succeeded(command("infer", f"runs/{config}", *asked)).stdout
    assert len(written) >= LENGTH
    vocabulary = set(WORD.findall(plays.read_text()))
    words = WORD.findall(written)
    share = sum(word in vocabulary for word in words) / len(words)
    record_property("of the words written are in the text", f"{share:.0%}")
    assert share >= KNOWN
