"""Records of texts in files, for a network that was trained on labelled texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mxrun.base.errors import Diagnostic, UserError
from mxrun.base.near_names import listed, nearest
from mxrun.config import Overrides
from mxrun.frontend import ModelDefinition
from mxrun.inference.file_settings import PATH, given_settings, with_settings
from mxrun.inference.records import (
    STANDARD_INPUT,
    STANDARD_INPUT_NAME,
    DatasetSource,
    input_files,
    shown_path,
    standard_input,
)
from mxrun.io.dataset.dataset import Dataset
from mxrun.io.dataset.registry import DATASETS
from mxrun.io.text.labelled import LabelledTextOptions, text_column
from mxrun.io.text.lines import LabelledTexts, LineForm, file_content
from mxrun.io.vocabulary.vocabulary import Vocabulary
from mxrun.run.trained_model import TrainedModel

# Settings that change how files of texts are read.
_SETTINGS = ("form", "delimiter", "encoding", "text", "label", "kept")


class TextSource(DatasetSource):
    """Texts of files in the given order: the lines of text files, or a column of tables.

    `-` is standard input, which holds lines unless training read another form.
    """

    def __init__(
        self, trained: TrainedModel, inputs: Sequence[str], settings: Overrides = ()
    ) -> None:
        """Read the files.

        settings: `KEY=VALUE` for their form, such as `text=body`. Raises UserError for files that
        cannot be read, for wrong settings, and for other networks.
        """
        assert trained.vocabulary is not None
        files = input_files(inputs, "texts are lines of a file, or of standard input (-)")
        built = trained.built
        options = _options(built, settings)
        lines: LineForm = getattr(options, "lines", LineForm())
        form = lines.without_labels()
        self._texts = LabelledTexts()
        for file in files:
            is_input = file == STANDARD_INPUT
            path = Path(STANDARD_INPUT_NAME if is_input else file)
            content = standard_input() if is_input else file_content(path)
            self._texts.add(content, path, form)
        dataset = _dataset(built, options, self._texts, trained.vocabulary)
        super().__init__(built, dataset)

    def _name(self, number: int) -> tuple[str, int]:
        """Return the file of a text, and its line there, or its row in a table, from 0."""
        path, _ = self._texts.places[number]
        return shown_path(str(path)), self._texts.numbers[number]


def _options(built: ModelDefinition, settings: Overrides) -> LabelledTextOptions:
    """Return how training's texts were read, with settings of the files' form.

    Raises UserError if it read one long text, and for wrong settings.
    """
    request = built.data.get("train")
    if request is None or not isinstance(request.options, LabelledTextOptions):
        problem = "the network continues texts: it has no classes for those of files"
        hint = "--prompt TEXT continues a text, and `mxrun evaluate RUN FILE` measures one"
        raise UserError(Diagnostic(problem, hint=hint))
    options: LabelledTextOptions = request.options
    if not settings:
        return options
    given = given_settings(settings)
    if wrong := [key for key in given if key not in _SETTINGS]:
        expected, hint = f"one of {listed(_SETTINGS)}", nearest(wrong[0], _SETTINGS)
        problem = f"{wrong[0]}= is no setting of files of texts"
        raise UserError(Diagnostic(problem, given[wrong[0]].start, expected, hint=hint))
    if request.format.of_files:
        # Training's texts are bundled; files have the form that the data set of files has.
        own = options.model_dump(exclude_unset=True)
        model = DATASETS.get(request.format.of_files).options
        of_files = model.model_validate({**own, PATH: STANDARD_INPUT})
        assert isinstance(of_files, LabelledTextOptions)
        options = of_files
    return with_settings(options, given)


def _dataset(
    built: ModelDefinition,
    options: LabelledTextOptions,
    found: LabelledTexts,
    vocabulary: Vocabulary,
) -> Dataset:
    """Return the texts as a data set without labels."""
    inputs = built.model.records
    column = text_column(found.texts, options, inputs, str(found.places[0][0]))
    # Batches have the length of the network.
    dataset = Dataset("texts", {}, inputs=inputs, texts=replace(column, buckets=()))
    return dataset.tokenized(vocabulary)
