"""`mxrun infer --prompt` and `inspect-memory --phase generate` as processes."""

from __future__ import annotations

import io
import json
import math
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import HANG_S, MXRUN, mxrun, refused, result, succeeded
from language_models import CONTEXT, LSTM, TRANSFORMER

from mxrun.base.errors import UserError
from mxrun.options.infer import InferOptions
from mxrun.report.generation import write_streamed, write_texts

RUN = "runs/transformer"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run, and prompts as files."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "net.yaml").write_text(TRANSFORMER)
    result("train", "net.yaml", cwd=folder)
    (folder / "lines.txt").write_text("ROMEO:\n\nI am \r\n")
    (folder / "lines.jsonl").write_text('"ROMEO:"\n{"prompt": "I am "}\n')
    (folder / "lines.json").write_text('[\n  "ROMEO:",\n  {"prompt": "I am "}\n]\n')
    (folder / "broken.json").write_text('["ROMEO:",\n  {"text": "I am "}]\n')
    (folder / "broken.jsonl").write_text('"ROMEO:"\n\n{"text": "I am "}\n')
    (folder / "unknown.txt").write_text("ROMEO:\n\n§\n")
    (folder / "latin.txt").write_bytes("I ä".encode("latin1"))
    return folder


def test_a_text_goes_on_and_the_same_seed_gives_the_same_one(work: Path) -> None:
    arguments = ("infer", RUN, "--prompt", "ROMEO:", "--length", "15", "--seed", "4")
    done = succeeded(mxrun(*arguments, cwd=work))
    assert done.stdout.startswith("ROMEO:")
    assert len(done.stdout) == len("ROMEO:") + 15 + len("\n")
    assert "15 tokens in " in done.stderr
    assert "checkpoint-40" in done.stderr
    report = result(*arguments, cwd=work)
    (only,) = report["results"]
    assert only["prompt"] + only["text"] + "\n" == done.stdout
    assert (report["temperature"], report["seed"], report["tokens"]) == (1.0, 4, 15)
    other = succeeded(mxrun(*arguments[:-1], "5", "--temperature", "2", cwd=work))
    assert other.stdout != done.stdout


def test_prompts_of_files_have_one_text_each(work: Path) -> None:
    greedy = ("--length", "9", "--temperature", "0")
    lines = result("infer", RUN, "--prompts", "lines.txt", *greedy, cwd=work)
    assert [each["prompt"] for each in lines["results"]] == ["ROMEO:", "I am "]
    for name in ("lines.jsonl", "lines.json"):
        values = result("infer", RUN, "--prompts", name, *greedy, cwd=work)
        assert values["results"] == lines["results"]
    shown = succeeded(mxrun("infer", RUN, "--prompts", "lines.txt", *greedy, cwd=work)).stdout
    texts = [each["prompt"] + each["text"] for each in lines["results"]]
    assert shown == f"{texts[0]}\n---\n{texts[1]}\n"


def test_prompts_of_standard_input_are_those_of_a_file(work: Path) -> None:
    options = ("--length", "9", "--temperature", "0", "--json")
    command = ("infer", RUN, "--prompts", "-")
    piped = mxrun(*command, *options, cwd=work, standard_input="ROMEO:\n\nI am \r\n")
    lines = result("infer", RUN, "--prompts", "lines.txt", *options[:-1], cwd=work)
    assert json.loads(succeeded(piped).stdout)["results"] == lines["results"]
    empty = mxrun(*command, cwd=work, standard_input="\n")
    assert empty.returncode == 2
    assert "standard input has no prompts" in empty.stderr


def test_an_interrupt_ends_the_line(work: Path) -> None:
    (work / "lstm.yaml").write_text(LSTM)
    result("train", "lstm.yaml", "train.max_steps=1", cwd=work)
    process = subprocess.Popen(
        [*MXRUN, "infer", "runs/lstm", "--prompt", "I", "--length", str(1 << 24)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=work,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.read(9).startswith(b"I")
        process.send_signal(signal.SIGINT)
        text, errors = process.communicate(timeout=HANG_S)
    finally:
        process.kill()
    assert process.returncode == 130, errors[-500:]
    assert text.endswith(b"\n")
    assert b"Traceback" not in errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prompt", "I", "--split", "train"), "--split cannot be combined with --prompt"),
        (("--prompt", "I", "--temperature", "-1"), "--temperature"),
        (("--prompt", "§"), "does not have these characters"),
        (("--prompts", "broken.jsonl"), "broken.jsonl, line 3"),
        (("--prompts", "broken.json"), "broken.json, line 2: not a prompt"),
        (("--prompts", "unknown.txt"), "unknown.txt, line 3: the vocabulary does not have"),
        (("--prompts", "latin.txt"), "latin.txt: byte 2: not UTF-8 text"),
        (("--prompt", "I \udcff"), "its character 3 is half of a pair, or no UTF-8"),
    ],
)
def test_what_makes_no_sense_is_refused(work: Path, options: tuple[str, ...], message: str) -> None:
    assert message in refused("infer", RUN, *options, cwd=work)


def options(**given: object) -> InferOptions:
    return InferOptions(run=Path(RUN), **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prompt": "I", "top_p": 0.0}, "--top-p"),
        ({"prompt": "I", "top_p": 1.5}, "--top-p"),
        ({"prompt": "I", "temperature": math.inf}, "--temperature"),
        ({"prompt": "I", "temperature": math.nan}, "--temperature"),
        ({"prompt": "I", "temperature": 0.0, "top_k": 3}, "draws nothing"),
        ({"prompt": "I", "prompts": Path("lines.txt")}, "leave out one"),
        ({"prompt": "I", "batch": "max"}, "--batch max"),
        ({"prompts": Path("lines.txt"), "inputs": ("x.npy",)}, "x.npy cannot be combined"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    given: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        assert options(**given).generates_text


def test_options_of_text_need_a_text() -> None:
    assert not options().generates_text
    assert options(prompt="I", length=5).generates_text
    with pytest.raises(UserError, match="--length, --top-k without a text to continue"):
        assert options(length=5, top_k=2).generates_text


def test_inspect_memory_shows_the_states(work: Path) -> None:
    phase = ("--phase", "generate", "--length", str(CONTEXT))
    report = result("inspect-memory", "net.yaml", *phase, cwd=work)
    text = result("infer", RUN, "--prompt", "I", "--length", str(CONTEXT - 1), cwd=work)
    assert text["planned_bytes"] == report["planned_bytes"]
    assert text["carried_bytes"] == report["classes"]["carried"]["total_bytes"] > 0
    of_run = result("inspect-memory", RUN, *phase, cwd=work)
    assert of_run["planned_bytes"] == report["planned_bytes"]
    table = succeeded(mxrun("inspect-memory", RUN, *phase, cwd=work)).stdout
    assert "carried from one run to the next" in table
    assert "--phase generate" in refused("inspect-memory", "net.yaml", "--length", "3", cwd=work)
    message = refused("inspect-memory", "digits_lenet", "--phase", "generate", cwd=work)
    assert "one sequence of token ids" in message


class _Watched(io.StringIO):
    """Stream that knows what was written when it was last flushed."""

    flushed = ""

    def flush(self) -> None:
        self.flushed = self.getvalue()


def test_each_piece_is_written_before_the_next_one_is_made(monkeypatch) -> None:
    stream = _Watched()
    monkeypatch.setattr("sys.stdout", stream)
    seen = []

    def pieces() -> Iterator[str]:
        for piece in ("a", "", "\x1b[2J"):
            seen.append(stream.flushed)
            yield piece

    write_streamed("> ", pieces())
    assert seen == ["> ", "> a", "> a"]
    assert stream.flushed == "> a\x1b[2J\n"
    assert json.dumps(stream.getvalue()).count("u001b") == 1


def test_what_the_encoding_lacks_is_escaped(monkeypatch) -> None:
    binary = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(binary, encoding="ascii"))
    write_streamed("> ", ["\u8239"])
    write_texts(["\xdc"])
    assert binary.getvalue() == b"> \\u8239\n\\xdc\n"
