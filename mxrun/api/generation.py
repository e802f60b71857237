"""Text from models: `generate` and `stream`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, overload

from mxrun import library
from mxrun.api.arguments import count, real, texts
from mxrun.base.dataclass import dataclass
from mxrun.base.limits import MAX_BATCH
from mxrun.commands.generate import Generation, prepare_generation
from mxrun.generation.prompts import Prompt
from mxrun.options.declaration import Option, declared_fields
from mxrun.options.infer import REAL_LIMITS, InferOptions
from mxrun.run.trained_model import TrainedModel

if TYPE_CHECKING:
    from typing_extensions import Unpack

# The limits of arguments are those of the command's options.
_OPTIONS = {each.name: each.parameter for each in declared_fields(InferOptions)}


@dataclass(frozen=True)
class GeneratedText:
    """Prompt and the text that follows it; as a string, both together.

    tokens: ids of the text. ended: why there are no more: `length`, or `end` after the vocabulary's
    token for the end of a text. notes: notes to the user.
    """

    prompt: str
    text: str
    tokens: tuple[int, ...]
    ended: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.prompt + self.text


class GenerateOptions(TypedDict, total=False):
    """Types of the keyword arguments of `generate`, for its overloads."""

    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int | None
    batch: int | None


class TextGenerator(ABC):
    """Methods of a model that continue texts."""

    @abstractmethod
    def _model(self) -> TrainedModel:
        """Return the network with its weights and vocabulary."""

    @overload
    def generate(
        self, prompts: str, length: int | None = None, **options: Unpack[GenerateOptions]
    ) -> GeneratedText: ...

    @overload
    def generate(
        self,
        prompts: list[str] | tuple[str, ...],
        length: int | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[GeneratedText]: ...

    def generate(
        self,
        prompts: str | list[str] | tuple[str, ...],
        length: int | None = None,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        batch: int | None = None,
    ) -> GeneratedText | list[GeneratedText]:
        """Continue a prompt, or several together, as `mxrun infer --prompt` does.

        prompts: a text, or several, for which a list is returned. length: number of tokens to add
        to each, by default 128, or what the network has positions for. temperature: divides the
        logits; 0 always takes the likeliest token. top_k: draw from the `top_k` likeliest tokens.
        top_p: draw from the fewest tokens that together have this probability. seed: of the draws,
        by default the config's. batch: number of prompts to go on with at once, by default 32.
        Without a vocabulary, prompts and texts are ids, such as `"3 1 4"`.

        The same arguments give the same texts. Raises UserError for a network that cannot continue
        texts, naming its layers, for tokens that it does not know, and for values out of range.
        """
        sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        given = {**sampling, "length": length, "batch": batch}
        with library.plugin_errors():
            generation = self._generation(prompts, given)
            for _ in generation.run():
                pass
        found = [
            GeneratedText(each.prompt, each.text, tuple(each.ids), each.ended, generation.notes)
            for each in generation.texts
        ]
        return found[0] if isinstance(prompts, str) else found

    def stream(
        self,
        prompt: str,
        length: int | None = None,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
    ) -> Iterator[str]:
        """Return the pieces of the text that `generate` returns, each as soon as it is made.

        The arguments are those of `generate`, and are checked at once.
        """
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        given["length"] = length
        with library.plugin_errors():
            generation = self._generation([prompt], given)
        return _pieces(generation)

    def _generation(self, prompts: str | Sequence[str], given: Mapping[str, Any]) -> Generation:
        """Return a generation that is ready to run. Raises UserError for values out of range."""
        options = {name: _checked(name, value) for name, value in given.items()}
        found = texts(prompts)
        places = [f"prompts[{number}]" for number in range(len(found))] if found[1:] else [""]
        continued = [Prompt(*each) for each in zip(found, places, strict=True)]
        model = self._model()
        return prepare_generation(
            model, continued, InferOptions(run=model.checkpoint.folder, **options)
        )


def _pieces(generation: Generation) -> Iterator[str]:
    """Yield the pieces of a text, as soon as each is made."""
    with library.plugin_errors():
        for piece in generation.run():
            if piece.text:
                yield piece.text


def _checked(name: str, value: Any) -> Any:
    """Return an option of a generation. Raises UserError for a value out of range."""
    if value is None and name != "temperature":
        return None
    if name in REAL_LIMITS:
        return real(name, value, *REAL_LIMITS[name])
    option = _OPTIONS[name]
    assert isinstance(option, Option)
    least, most = option.minimum, option.maximum
    return count(name, value, 1 if least is None else int(least), int(most or MAX_BATCH))
