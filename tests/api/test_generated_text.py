"""Text from models in Python: what the command prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from language_models import CONTEXT, LSTM
from training import run_training

import mxrun
from mxrun.commands.generate import generate
from mxrun.generation.prompts import Prompt
from mxrun.options.infer import InferOptions


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> mxrun.LoadedModel:
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("net.yaml").write_text(LSTM)
        run_training()
    return mxrun.load(folder / "runs" / "lstm")


def test_generate_is_the_command(model: mxrun.LoadedModel) -> None:
    folder = model.result.folder
    prompts = ("ROMEO:", "I am ", "And so it is for all of us")
    drawn = {"temperature": 0.7, "top_k": 9, "top_p": 0.95, "seed": 3}
    options = InferOptions(run=folder, length=30, batch=2, **drawn)
    command = generate(options, [Prompt(text) for text in prompts])
    assert list(command.run())
    texts = model.generate(list(prompts), 30, **drawn, batch=2)
    assert [each.text for each in texts] == [each.text for each in command.texts]
    assert [list(each.tokens) for each in texts] == [each.ids for each in command.texts]
    first = model.generate(prompts[0], 30, **drawn)
    assert first == texts[0]
    assert str(first) == first.prompt + first.text
    assert (first.prompt, first.ended, len(first.tokens)) == ("ROMEO:", "length", 30)
    assert first.notes == command.notes
    pieces = list(model.stream(prompts[0], 30, **drawn))
    assert len(pieces) == 30
    assert "".join(pieces) == first.text
    assert model.generate("I", 30).text != model.generate("I", 30, seed=1 << 62).text
    assert len(model.generate("I", 2 * CONTEXT).text) == 2 * CONTEXT


def test_assigned_weights_are_used() -> None:
    model = mxrun.load("gpt_tiny")
    assert set(model.generate("To be, or", 20, temperature=0).tokens) != {7}
    bias = model.parameters["head_bias"].copy()
    bias[7] += 100
    model.parameters["head_bias"] = bias
    assert model.generate("To be, or", 20, temperature=0).tokens == (7,) * 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompts": []}, "there is nothing to continue"),
        ({"prompts": [3]}, "there is nothing to continue"),
        ({"prompts": 3}, "there is nothing to continue"),
        ({"prompts": None}, "there is nothing to continue"),
        ({"prompts": {"a", "b"}}, "there is nothing to continue"),
        ({"prompts": "§"}, "the vocabulary does not have these characters"),
        ({"prompts": ["I", "§"]}, "prompts.1.: the vocabulary does not have these characters"),
        ({"prompts": "I", "seed": 1 << 63}, "seed cannot be"),
        ({"prompts": "I", "length": 0}, "length cannot be 0"),
        ({"prompts": "I", "length": (1 << 24) + 1}, "length cannot be 16777217"),
        ({"prompts": "I", "temperature": -1}, "temperature"),
        ({"prompts": "I", "temperature": float("nan")}, "temperature"),
        ({"prompts": "I", "temperature": "0.5"}, "temperature cannot be '0.5'"),
        ({"prompts": "I", "temperature": None}, "temperature cannot be None"),
        ({"prompts": "I", "top_k": 0}, "top_k cannot be 0"),
        ({"prompts": "I", "top_p": 1.5}, "top_p"),
        ({"prompts": "I", "top_p": "most"}, "top_p cannot be 'most'"),
        ({"prompts": "I", "seed": -1}, "seed cannot be -1"),
        ({"prompts": "I", "batch": 0}, "batch cannot be 0"),
    ],
)
def test_what_makes_no_sense_is_refused(
    model: mxrun.LoadedModel, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(mxrun.UserError, match=message):
        model.generate(**arguments)


def test_streaming_checks_at_once(model: mxrun.LoadedModel) -> None:
    with pytest.raises(mxrun.UserError, match="temperature"):
        model.stream("I", temperature=-1)
    with pytest.raises(mxrun.UserError, match="there is nothing to continue"):
        model.stream(["I"])
    with pytest.raises(mxrun.UserError, match="one sequence of token ids"):
        mxrun.load("digits_lenet").stream("I")


PLUGIN = """
from mxrun.operator.simple import reads_out_grad, simple_operator


@simple_operator("needs_several", gradient=reads_out_grad(lambda env, out_grad: out_grad))
def needs_several(env, data):
    '''output = data, which has several positions.'''
    return data if data.shape[1] > 1 else data / env.several
"""


@pytest.mark.usefixtures("separate_registry")
def test_errors_of_plugins_are_errors_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PLUGIN)
    config, head = tmp_path / "net.yaml", "    - FullyConnected: {name: head"
    text = LSTM.replace(head, f"    - needs_several: {{name: own}}\n{head}")
    config.write_text(f"plugins: [own.py]\n{text}")
    model = mxrun.load(config)
    with pytest.raises(mxrun.UserError, match=r"own\.py"):
        model.generate("I", 2)
    pieces = model.stream("I", 2)
    with pytest.raises(mxrun.UserError, match=r"own\.py"):
        list(pieces)
