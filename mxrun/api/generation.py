"""Text from models: `generate` and `stream`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict, overload

from mxrun import library
from mxrun.api.arguments import count, real, texts
from mxrun.base.limits import MAX_GENERATED, MAX_SEED
from mxrun.commands.generate import Generation, prepare_generation
from mxrun.generation.prompts import Prompt
from mxrun.options.infer import InferOptions
from mxrun.run.trained_model import TrainedModel

if TYPE_CHECKING:
    from typing_extensions import Unpack

_FINITE = "a finite number, 0 or more"


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
        with library.plugin_errors():
            generation = self._generation(
                prompts,
                length=length,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                batch=batch,
            )
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
        with library.plugin_errors():
            generation = self._generation(
                [prompt],
                length=length,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                batch=None,
            )
        return _pieces(generation)

    def _generation(
        self,
        prompts: str | Sequence[str],
        *,
        length: int | None,
        temperature: float,
        top_k: int | None,
        top_p: float | None,
        seed: int | None,
        batch: int | None,
    ) -> Generation:
        """Return a generation that is ready to run. Raises UserError for values out of range."""
        temperature = real("temperature", temperature, _FINITE, lambda x: x >= 0)
        if top_p is not None:
            top_p = real("top_p", top_p, "above 0, at most 1", lambda x: 0 < x <= 1)
        top_k = None if top_k is None else count("top_k", top_k, minimum=1)
        batch = None if batch is None else count("batch", batch, minimum=1)
        given = texts(prompts)
        length = None if length is None else count("length", length, 1, MAX_GENERATED)
        seed = None if seed is None else count("seed", seed, 0, MAX_SEED)
        places = [f"prompts[{number}]" for number in range(len(given))] if given[1:] else [""]
        continued = [Prompt(*each) for each in zip(given, places, strict=True)]
        model = self._model()
        options = InferOptions(
            run=model.checkpoint.folder,
            length=length,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            batch=batch,
        )
        return prepare_generation(model, continued, options)


def _pieces(generation: Generation) -> Iterator[str]:
    """Yield the pieces of a text, as soon as each is made."""
    with library.plugin_errors():
        for piece in generation.run():
            if piece.text:
                yield piece.text
