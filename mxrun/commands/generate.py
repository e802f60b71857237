"""Implementation of `infer --prompt`: prompts in chunks, then one token of each row at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy.typing as npt

from mxrun.base.dataclass import dataclass
from mxrun.device.interface import Mirror
from mxrun.executor.executor import Executor
from mxrun.generation.network import (
    CHUNK,
    PlannedGeneration,
    language_model,
    plan_generation,
    position_limit,
)
from mxrun.generation.prompts import Prompt, Tokens, read_prompts
from mxrun.generation.sampling import RowDraws, TokenSampling
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import GENERATE, PREFILL
from mxrun.io.vocabulary.vocabulary import TokenDecoder
from mxrun.options.infer import InferOptions
from mxrun.options.shared import MAX
from mxrun.passes.incremental import PRESENT
from mxrun.planner.plan import Plan
from mxrun.preparation.notes import Notify, ignore_note
from mxrun.preparation.prepared import Prepared, preparing
from mxrun.run.trained_model import TrainedModel, opened
from mxrun.runtime.engine.default import engine_of
from mxrun.runtime.engine.interface import EngineOperator
from mxrun.train.operations import LoopOperations

Array = npt.NDArray[Any]
Row = dict[str, Any]

# Rows that are generated at once, and tokens of each, unless requested otherwise.
_MAX_ROWS = 32
_LENGTH = 128
# Positions that take longer one by one than in a padded chunk.
_MIN_PADDED = 4


@dataclass(frozen=True)
class Piece:
    """Text that one token adds to a prompt; empty while a character is not complete."""

    row: int
    text: str


@dataclass
class Continuation:
    """Prompt and the tokens that follow it.

    pieces: the text of each token. ended: why there are no more: `length`, `end` after the
    vocabulary's token for the end of a text, or empty while it is being generated.
    """

    prompt: str
    prompt_ids: list[int]
    ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    ended: str = ""

    @property
    def text(self) -> str:
        """The text that follows the prompt."""
        return "".join(self.pieces)

    def token(self, index: int) -> int:
        """Return a token of the prompt and the text; the last one for those that are not there."""
        if index < len(self.prompt_ids) or not self.ids:
            return self.prompt_ids[min(index, len(self.prompt_ids) - 1)]
        return self.ids[min(index - len(self.prompt_ids), len(self.ids) - 1)]

    def to_json(self) -> Row:
        """Return the text as JSON."""
        return {
            "prompt": self.prompt,
            "text": self.text,
            "prompt_tokens": self.prompt_ids,
            "tokens": self.ids,
            "ended": self.ended,
        }


class Generation:
    """Trained network that is ready to continue prompts, which is done once.

    texts: one for each prompt, in order; complete after `run`.
    """

    def __init__(
        self,
        trained: TrainedModel,
        prompts: Sequence[Prompt],
        sampling: TokenSampling,
        tokens: Tokens,
        planned: PlannedGeneration,
        length: int,
        seed: int,
        executor: Executor,
    ) -> None:
        self.trained, self.sampling, self.tokens = trained, sampling, tokens
        self.planned, self._executor = planned, executor
        self.length, self.seed = length, seed
        self.texts = [Continuation(each.text, tokens.encode(each.text)) for each in prompts]
        self._seconds, self._runs = 0.0, 0

    @property
    def plan(self) -> Plan:
        """The plan of one position."""
        return self.planned.plan

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the weights and the window."""
        window, longest = self.planned.length, max(map(_prompted, self.texts))
        if longest + self.length <= window:
            return self.trained.notes
        return (
            *self.trained.notes,
            f"the network has {window} positions: whenever they are full, generation goes on with "
            f"the last {max(1, window // 2)} tokens at the first ones",
        )

    def run(self) -> Iterator[Piece]:
        """Generate all texts; yield each token's text as soon as it is drawn."""
        size = self.planned.batch
        started = time.perf_counter()
        for first in range(0, len(self.texts), size):
            for piece in _Rows(self, self._executor, range(first, first + size)).run():
                self._seconds = time.perf_counter() - started
                yield piece
        self._seconds = time.perf_counter() - started

    def summary(self) -> Row:
        """Return the run, its options, its memory and its speed as JSON; complete after `run`."""
        checkpoint, sampling = self.trained.checkpoint, self.sampling
        made = sum(len(text.ids) for text in self.texts)
        return {
            "run": self.trained.built.options.name,
            "checkpoint": str(checkpoint.folder),
            "step": checkpoint.manifest.progress.step,
            "averaged": self.trained.averaged,
            "length": self.length,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "seed": self.seed,
            "batch_size": self.planned.batch,
            "threads": self.plan.device.host_threads,
            "planned_bytes": self.plan.planned_bytes,
            "carried_bytes": self.plan.classes()[MemoryClass.CARRIED.value].total_bytes,
            "tokens": made,
            "seconds": self._seconds,
            "tokens_per_s": made / max(self._seconds, 1e-9),
        }

    def to_json(self) -> Row:
        """Return the summary and the texts as JSON."""
        return {**self.summary(), "results": [text.to_json() for text in self.texts]}


class _Rows:
    """Rows of one batch, which are at the same position in every run.

    The positions that all prompts have are first run in chunks, but for the last of them, which
    gives logits. A shorter prompt is then continued earlier. A row without a text, or with a
    finished one, repeats its last token: rows do not depend on each other.

    A full window slides: the last half of its tokens is run again from position 0 on, as every
    token has another position then. So a token sees at least half a window before it, and what is
    run again are at most as many positions as are generated, in chunks.
    """

    def __init__(self, generation: Generation, executor: Executor, numbers: Sequence[int]) -> None:
        self._generation, self._executor = generation, executor
        texts = generation.texts
        self._numbers = [number for number in numbers if number < len(texts)]
        self._texts = [texts[number] for number in self._numbers]
        self._decoders: list[TokenDecoder] = [
            generation.tokens.decoder(text.prompt_ids) for text in self._texts
        ]
        self._draws = [RowDraws(generation.seed, number) for number in self._numbers]
        trained, plan = generation.trained, generation.planned.plan
        self._operations = LoopOperations(engine_of(trained.built.options.engine))
        self._position = executor.tensor(PRESENT).mirror() if PRESENT in plan.specs else None

    def run(self) -> Iterator[Piece]:
        """Yield the pieces of all rows, position by position."""
        executor, planned = self._executor, self._generation.planned
        compute = self._operations.train(lambda _: executor.run(GENERATE), GENERATE)
        data = executor.tensor(planned.model.data).mirror()
        head = planned.network.symbol.heads[0].name
        logits = executor.result(GENERATE, head).mirror()
        rows = logits.array.reshape(planned.batch, planned.model.tokens)
        known = rows[:, : self._generation.tokens.count]
        data.array[...] = 0
        # `present` is at position present - first of the window.
        kept, present = max(1, planned.length // 2), min(map(_prompted, self._texts)) - 1
        first = 0 if present < planned.length else present - kept
        present = first + self._prefill(first, present)
        while not all(text.ended for text in self._texts):
            if present - first == planned.length:
                first = present - kept
                present = first + self._prefill(first, present)
            data.array[: len(self._texts), 0] = [text.token(present) for text in self._texts]
            self._compute(compute, data, present - first)
            logits.load()
            for row in range(len(self._texts)):
                if (piece := self._next(row, present, known)) is not None:
                    yield piece
            present += 1

    def _prefill(self, first: int, end: int) -> int:
        """Run tokens from `first` to `end` in chunks, from position 0 on; return how many."""
        executor, planned = self._executor, self._generation.planned
        executor.clear_carried(GENERATE)
        if (network := planned.prefill) is None:
            return 0
        compute = self._operations.train(lambda _: executor.run(PREFILL), PREFILL)
        name, count = planned.model.data, end - first
        data = executor.tensor_at(planned.plan.offset(name), network.inputs[name]).mirror()
        starts = chunk_starts(count, planned.length, network.carries)
        for start in starts:
            data.array[...] = 0
            for row, text in enumerate(self._texts):
                run = range(first + start, min(first + start + CHUNK, end))
                data.array[row, : len(run)] = [text.token(each) for each in run]
            self._compute(compute, data, start)
        return min(starts[-1] + CHUNK, count) if starts else 0

    def _compute(self, compute: EngineOperator, data: Mirror, first: int) -> None:
        """Run a program on tokens at the positions from `first` on."""
        data.store()
        if self._position is not None:
            self._position.array[0] = first
            self._position.store()
        self._operations.run(compute)

    def _next(self, row: int, present: int, logits: Array) -> Piece | None:
        """Draw a row's token after `present`; return its piece, None if the token is known."""
        text, following = self._texts[row], present + 1
        if text.ended or following < _prompted(text) + len(text.ids):
            return None
        sampling, tokens = self._generation.sampling, self._generation.tokens
        token = sampling.choose(logits[row], self._draws[row].at(following - 1))
        decoder = self._decoders[row]
        if token == tokens.end:
            text.ended, added = "end", decoder.finish()
        else:
            text.ids.append(token)
            added = decoder.push(token)
            if len(text.ids) == self._generation.length:
                text.ended, added = "length", added + decoder.finish()
        text.pieces.append(added)
        return Piece(self._numbers[row], added)


def _prompted(text: Continuation) -> int:
    return len(text.prompt_ids)


def prompts_of(options: InferOptions) -> Sequence[Prompt]:
    """Return the prompts that the options name; raises UserError if a file has none."""
    return (
        [Prompt(options.prompt or "")] if options.prompts is None else read_prompts(options.prompts)
    )


def generate(
    options: InferOptions, prompts: Sequence[Prompt], notify: Notify = ignore_note
) -> Generation:
    """Prepare a run's network to continue prompts.

    notify: receives notes about long waits. Raises UserError for errors in the run, the checkpoint
    or the prompts.
    """
    return prepare_generation(opened(options, 1), prompts, options, notify)


def prepare_generation(
    trained: TrainedModel,
    prompts: Sequence[Prompt],
    options: InferOptions,
    notify: Notify = ignore_note,
) -> Generation:
    """Plan and prepare the generation of texts that continue one prompt or more.

    notify: receives notes about long waits. Raises UserError for prompts with unknown tokens, for
    and networks that cannot generate.
    """
    # The options refuse it.
    assert options.batch != MAX
    built = trained.built
    with preparing(built.options, notify):
        model = language_model(built)
        tokens = Tokens(trained.vocabulary, model.tokens)
        longest = max(map(len, tokens.encode_all(prompts)))
        batch = min(options.batch or _MAX_ROWS, len(prompts))
        length = options.length or _default_length(position_limit(built), longest)
        planned = plan_generation(
            built,
            batch,
            longest + length,
            options.threads,
            options.precision,
            notify,
        )
        prepared = Prepared.of(built, planned.plan)
        prepared.begin(trained.copy_into)
        temperature = 1.0 if options.temperature is None else options.temperature
        sampling = TokenSampling(temperature, options.top_k, options.top_p)
        seed = built.options.seed if options.seed is None else options.seed
        executor = prepared.executor
        return Generation(trained, prompts, sampling, tokens, planned, length, seed, executor)


def chunk_starts(count: int, length: int, carries: bool) -> list[int]:
    """Return the first positions of the chunks in which `count` positions are run.

    length: number of positions that states hold, at least those of a chunk. carries: whether no
    position may be run twice, or be padding. Positions after the last chunk are run one by one.
    """
    starts = [*range(0, count - CHUNK + 1, CHUNK)]
    rest = count - len(starts) * CHUNK
    if not carries and rest >= _MIN_PADDED:
        # What is stored for padding is overwritten before it is read.
        starts.append(min(len(starts) * CHUNK, length - CHUNK))
    return starts


def _default_length(limit: int | None, longest: int) -> int:
    """Return the number of tokens after a prompt of `longest` tokens."""
    return _LENGTH if limit is None or limit <= longest else min(_LENGTH, limit - longest)
