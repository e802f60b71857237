"""Text of trained runs: equal to the full network's, whatever else is generated beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from generation_runs import position_by_position
from language_models import CARRIED, CONTEXT, LSTM, TOKENS, TRANSFORMER
from layer_configs import config_file
from memory_reports import memory_of
from training import run_training

from mxrun.base.errors import UserError
from mxrun.base.tensor import TensorSpec
from mxrun.commands import generate
from mxrun.commands.generate import (
    Continuation,
    Generation,
    chunk_starts,
    prepare_generation,
)
from mxrun.compiler.compile import compile_plan
from mxrun.compiler.request import CompileRequest
from mxrun.executor.executor import Executor
from mxrun.generation.network import CHUNK, language_model, plan_generation
from mxrun.generation.prompts import Prompt, read_prompts
from mxrun.graph.graph import MemoryClass
from mxrun.graph.phases import EVALUATE, GENERATE, PREFILL
from mxrun.graph.symbol import Symbol
from mxrun.io.vocabulary.vocabulary import CharacterVocabulary
from mxrun.options.infer import InferOptions
from mxrun.preparation.device import describe, open_device
from mxrun.preparation.planning import load
from mxrun.run.trained_model import TrainedModel

PROMPTS = ("ROMEO:", "I", "the ", "And so")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainedModel]:
    """Trained networks by name."""
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        configs = {"transformer": TRANSFORMER, "lstm": LSTM, "carried": CARRIED}
        for name, config in configs.items():
            Path("net.yaml").write_text(config)
            run_training()
            found[name] = TrainedModel.open(folder / "runs" / name)
    return found


def prepared(model: TrainedModel, *prompts: str, **options: object) -> Generation:
    chosen = InferOptions(run=model.checkpoint.folder, **options)
    return prepare_generation(model, [Prompt(text) for text in prompts], chosen)


def continued(
    model: TrainedModel, *prompts: str, length: int | None = 12, **options: object
) -> list[Continuation]:
    generation = prepared(model, *prompts, length=length, **options)
    pieces = list(generation.run())
    for row, text in enumerate(generation.texts):
        assert "".join(piece.text for piece in pieces if piece.row == row) == text.text
    return generation.texts


def full_logits(model: TrainedModel, ids: list[int]) -> np.ndarray:
    """Return the logits [positions, tokens] of the network that reads all ids at once."""
    language = language_model(model.built)
    shapes = {name: array.shape for name, array in model.arrays.items()}
    device = open_device(model.built.options, describe(model.built.options, 1))
    request = CompileRequest(
        {"data": TensorSpec((1, len(ids)), "int32")},
        shapes=shapes,
        phases=(EVALUATE,),
        constant_parameters=True,
        device=device.description,
    )
    executor = Executor(compile_plan(Symbol([language.logits]), request), device)
    executor.device.fill(executor.memory, 0, executor.plan.pinned_bytes, 0)
    model.copy_into(executor)
    executor.prepare()
    executor.tensor("data").write([ids])
    executor.run(EVALUATE)
    return executor.result(EVALUATE, language.logits.name).read()[0]


@pytest.mark.parametrize("name", ["transformer", "lstm", "carried"])
@pytest.mark.parametrize("prompt", ["ROMEO:", "And so I tell you"])
def test_greedy_tokens_and_logits_are_those_of_the_full_network(
    models, name: str, prompt: str
) -> None:
    model, count = models[name], 12 if len(prompt) < CHUNK else CONTEXT - len(prompt)
    (text,) = continued(model, prompt, temperature=0, length=count)
    ids = text.prompt_ids + text.ids
    assert (len(text.ids), text.ended) == (count, "length")
    logits = full_logits(model, ids)
    best = np.sort(logits, axis=1)
    for position, token in enumerate(ids[1:]):
        is_new = position + 1 >= len(text.prompt_ids)
        if is_new and best[position, -1] - best[position, -2] > 1e-4:
            assert logits[position].argmax() == token
    device = open_device(model.built.options, describe(model.built.options, 1))
    symbol = Symbol([language_model(model.built).logits])
    steps, _ = position_by_position(symbol, np.array([ids], np.int32), device, model.arrays)
    np.testing.assert_allclose(steps[0], logits, atol=1e-4)


@pytest.mark.parametrize("name", ["transformer", "lstm", "carried"])
@pytest.mark.parametrize("batch", [None, 3])
def test_a_batch_of_prompts_equals_single_prompts(models, name: str, batch: int | None) -> None:
    together = continued(models[name], *PROMPTS, temperature=0, batch=batch)
    alone = [continued(models[name], prompt, temperature=0)[0] for prompt in PROMPTS]
    assert [text.to_json() for text in together] == [text.to_json() for text in alone]
    # Draws depend on the number of a prompt, not on what the others are.
    drawn = continued(models[name], *PROMPTS, batch=batch)
    other = continued(models[name], "O", "brief", *PROMPTS[2:3], batch=batch)
    assert other[2].ids == drawn[2].ids


def test_the_seed_decides_the_text(models) -> None:
    texts = [continued(models["transformer"], "And", seed=seed)[0].text for seed in (1, 1, 2, 0)]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3
    # The config's seed is 0.
    assert continued(models["transformer"], "And")[0].text == texts[3]


@pytest.mark.parametrize(
    ("setting", "found"),
    [("precision: bfloat16", ("jit", "float32")), ("implementation: numpy", ("numpy", "float32"))],
)
def test_the_form_of_a_layer_has_its_implementation_and_caches_of_the_networks_dtype(
    tmp_path: Path, setting: str, found: tuple[str, str]
) -> None:
    chosen = f"causal: true, packed: true, {setting}"
    config = config_file(tmp_path, TRANSFORMER.replace("causal: true, packed: true", chosen))
    built = load(config, batch=1)
    steps = plan_generation(built, 1, CONTEXT).plan.phases[GENERATE].graph.steps
    (kernel,) = (step.kernel for step in steps if step.name == "attention")
    assert kernel is not None
    dtypes = {spec.dtype for spec in kernel.outputs if spec is not None}
    assert (kernel.implementation, *dtypes) == found


def test_caches_are_bfloat16_with_the_network(models) -> None:
    model, prompt = models["transformer"], "And so it is for all"
    for precision in ("float32", "bfloat16"):
        generation = prepared(model, prompt, length=4, temperature=0, precision=precision)
        list(generation.run())
        # Of 32 numbers each for 24 positions, the keys in blocks of 16.
        nbytes = generation.summary()["carried_bytes"]
        assert nbytes == (4 if precision == "float32" else 2) * 32 * (32 + CONTEXT)
        head = generation.planned.network.symbol.heads[0].name
        logits = generation._executor.result(GENERATE, head).read().reshape(-1)
        ids = generation.texts[0].prompt_ids + generation.texts[0].ids[:-1]
        np.testing.assert_allclose(logits, full_logits(model, ids)[-1], atol=0.1)


def test_a_full_window_slides_by_its_half(models) -> None:
    """Every token is the likeliest one after the last tokens, read from position 0 on."""
    model, length = models["transformer"], 3 * CONTEXT
    (text,) = continued(model, "ROMEO:", length=None)
    assert len(text.prompt_ids + text.ids) == CONTEXT
    prompts = ("ROMEO:", "And so it is for all, and so it is for ever after", "I")
    generation = prepared(model, *prompts, length=length, temperature=0)
    assert f"{CONTEXT} positions" in generation.notes[-1]
    list(generation.run())
    # The shortest prompt decides where the window begins.
    first, begin = {0: 0}, 0
    for present in range(len("ROMEO:"), length):
        if present - begin == CONTEXT:
            begin = present - CONTEXT // 2
        first[present] = begin
    for row in generation.texts:
        assert len(row.ids) == length
        ids = row.prompt_ids + row.ids
        for present in range(len(row.prompt_ids) - 1, length - 1):
            logits = full_logits(model, ids[first.get(present, 0) : present + 1])[-1]
            best = logits.max()
            assert logits[ids[present + 1]] == pytest.approx(best, abs=1e-4), (row.prompt, present)
    # A prompt that is longer than the window is continued after its end.
    (text,) = continued(model, "And so it is for all. " * 3, length=5, temperature=0)
    assert len(text.ids) == 5
    # A recurrence has no such limit.
    (text,) = continued(models["lstm"], "ROMEO:", length=3 * CONTEXT)
    assert len(text.ids) == 3 * CONTEXT


def test_learned_first_states_of_a_batch_are_refused_for_any_batch(tmp_path: Path) -> None:
    text = LSTM.replace("        initial_state: zeros\n", "")
    learned = "  variables: {rnn_state: {lr_mult: 1}, rnn_state_cell: {lr_mult: 1}}\n"
    config = config_file(tmp_path, text.replace("network:\n", f"network:\n{learned}"))
    built = load(config)
    for batch in (1, built.model.batch_size):
        with pytest.raises(UserError, match="one position after the other") as raised:
            plan_generation(built, batch, CONTEXT)
        (problem,) = raised.value.diagnostics
        assert "initial_state: zeros" in problem.expected
        assert problem.got == "initial_state: input"


def test_a_token_for_the_end_of_a_text_ends_it(models) -> None:
    model = models["transformer"]
    vocabulary = model.vocabulary
    assert isinstance(vocabulary, CharacterVocabulary)
    (text,) = continued(model, "ROMEO:", temperature=0)
    end = next(token for token in text.ids if token not in text.prompt_ids)
    tokens = ["<eos>" if number == end else each for number, each in enumerate(vocabulary.tokens)]
    with_end = replace(model, vocabulary=CharacterVocabulary(tokens, None, False))
    kept = text.ids[: text.ids.index(end)]
    ended, other = continued(with_end, "ROMEO:", "Q", temperature=0)
    assert (ended.ids, ended.ended) == (kept, "end")
    assert other.ended in ("end", "length")
    assert ended.text == vocabulary.decode(kept)


def test_a_run_without_vocabulary_reads_and_writes_numbers(models) -> None:
    model = replace(models["transformer"], vocabulary=None)
    (text,) = continued(model, "3 1 4", temperature=0, length=5)
    assert text.prompt_ids == [3, 1, 4]
    assert text.text == "".join(f" {token}" for token in text.ids)
    with pytest.raises(UserError, match="no vocabulary"):
        continued(model, f"3 {TOKENS}")
    with pytest.raises(UserError, match="no vocabulary"):
        continued(model, f"3 {'0' * 12}{TOKENS}")
    (long,) = continued(model, f"3 {'0' * 5000}1 4", temperature=0, length=5)
    assert (long.prompt_ids, long.ids) == (text.prompt_ids, text.ids)


def test_prompts_of_unknown_characters_and_empty_ones_are_refused(models) -> None:
    with pytest.raises(UserError, match="does not have these characters: '§'"):
        continued(models["lstm"], "a § b")
    with pytest.raises(UserError, match="a prompt is empty"):
        continued(models["lstm"], "a", "")


def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("ROMEO:\nI am\n", encoding="utf-8-sig")
    assert [prompt.text for prompt in read_prompts(path)] == ["ROMEO:", "I am"]


@pytest.mark.parametrize(
    ("count", "length", "starts", "carried"),
    [
        (0, 24, [], []),
        (3, 24, [], []),
        (4, 24, [0], []),
        (16, 24, [0], [0]),
        (19, 24, [0], [0]),
        # Padding begins earlier than it must, where states hold no more positions.
        (20, 24, [0, 8], [0]),
        (20, 64, [0, 16], [0]),
        (45, 47, [0, 16, 31], [0, 16]),
    ],
)
def test_a_prompt_is_run_in_chunks(
    count: int, length: int, starts: list[int], carried: list[int]
) -> None:
    assert CHUNK == 16
    assert chunk_starts(count, length, carries=False) == starts
    assert chunk_starts(count, length, carries=True) == carried


def test_chunks_change_no_draw(models, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = ("And so it is for all", "And so", "And so it is for")
    for model in models.values():
        in_chunks = [continued(model, *prompts[:n], length=4) for n in (1, 3)]
        with monkeypatch.context() as patch:
            patch.setattr(generate, "chunk_starts", lambda *_: [])
            one_by_one = [continued(model, *prompts[:n], length=4) for n in (1, 3)]
        for texts, others in zip(in_chunks, one_by_one, strict=True):
            assert [text.ids for text in texts] == [text.ids for text in others]


@pytest.mark.parametrize("name", ["transformer", "lstm"])
def test_planned_memory_is_touched_memory(models, name: str) -> None:
    model = models[name]
    prompt = "And so it is for all"
    generation = prepared(model, prompt, length=CONTEXT - len(prompt))
    plan, executor = generation.plan, generation._executor
    assert PREFILL in plan.phases
    assert plan.planned_bytes == plan.lower_bound_bytes

    def exercise() -> None:
        executor.device.fill(executor.memory, 0, plan.pinned_bytes, 0)
        model.copy_into(executor)
        executor.prepare()
        list(Generation(*_parts(generation)).run())

    assert executor.touched_bytes(exercise) == plan.planned_bytes


def _parts(generation: Generation) -> tuple:
    prompts = [Prompt(text.prompt) for text in generation.texts]
    parts = (generation.trained, prompts, generation.sampling, generation.tokens)
    return (*parts, generation.planned, generation.length, generation.seed, generation._executor)


def test_inspect_memory_shows_the_plan_of_infer(models, tmp_path: Path) -> None:
    model = models["transformer"]
    config = config_file(tmp_path, TRANSFORMER)
    report = memory_of(config, phase="generate", length=CONTEXT, measured=False).to_json()
    planned = plan_generation(model.built, 1, CONTEXT)
    assert report["planned_bytes"] == planned.plan.planned_bytes
    assert report["phase"] == "generate"
    # Keys in blocks of 16 positions, and values, of 32 numbers each.
    assert report["classes"]["carried"]["total_bytes"] == 4 * 32 * (32 + CONTEXT)
    names = {block["tensor"] for block in report["pinned"] if block["class"] == "carried"}
    assert names == {"attention:key_cache", "attention:value_cache"}
    lstm = plan_generation(models["lstm"].built, 2, 1000).plan
    assert lstm.classes()[MemoryClass.CARRIED.value].total_bytes == 2 * (2 * 32 * 4)
