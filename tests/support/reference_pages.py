"""Pages of the reference, generated from the program; run this file to write them.

python tests/support/reference_pages.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import get_args, get_type_hints

from mxrun.cli.parameters import OPTIONS
from mxrun.cli.registry import COMMANDS, names_in
from mxrun.commands.ops import operators
from mxrun.inspection.reference import LAYERS, ReferenceEntry, config_reference
from mxrun.operator.family import OperatorFamily
from mxrun.operator.property import Precision
from mxrun.operator.register import OPERATORS
from mxrun.options.declaration import DeclaredField, Option, declared_fields

COMMAND = "python tests/support/reference_pages.py"
FOLDER = Path(str(files("mxrun") / "docs" / "reference"))
_NOTE = "\nThis page is generated from the program. `mxrun help` shows the same for one key.\n"
# Pages of choices: name, title, key, and an introduction.
_CHOICES = (
    (
        "transforms",
        "Transforms of records",
        "data.train.transforms",
        "Transforms change the records of `data.train` and `data.eval`, in the order in which they "
        "are listed, before they are batched.",
    ),
    ("optimizers", "Optimizers", "train.optimizer", "The optimizer changes the parameters."),
    (
        "schedules",
        "Learning-rate schedules",
        "train.schedule",
        "A schedule gives the learning rate of each step, from the optimizer's `lr`.",
    ),
    (
        "initializers",
        "Initializers",
        "train.initializer",
        "Initializers give the parameters' values before training: `train.initializer` those of "
        "all weights, `init` of `network.variables` those of some.",
    ),
    (
        "metrics",
        "Metrics",
        "train.metrics",
        "Metrics are measured in training and in evaluation, besides the loss. Parameters follow "
        "the name: `{f1: {average: macro}}`.",
    ),
    (
        "datasets",
        "Data sets and file formats",
        "data.train.dataset",
        "The options of a data set are keys of `data.train` and `data.eval`, beside `dataset`.",
    ),
)
_FAMILIES: Mapping[OperatorFamily, str] = {
    OperatorFamily.CONVOLUTION: "Convolutions",
    OperatorFamily.DENSE: "Dense layers and products of matrices",
    OperatorFamily.POOLING: "Pooling",
    OperatorFamily.ACTIVATION: "Activations",
    OperatorFamily.NORMALISATION: "Normalisation",
    OperatorFamily.RANDOM: "Random",
    OperatorFamily.LOSS: "Losses",
    OperatorFamily.ELEMENTWISE: "Functions of each element, of one tensor or several",
    OperatorFamily.SHAPE: "Shapes and joins",
    OperatorFamily.REDUCTION: "Reductions",
    OperatorFamily.OTHER: "Updates of optimizers",
}


def reference_pages() -> dict[str, str]:
    """Return the text of every page by its name in the folder `reference`."""
    root = config_reference()
    by_path = {".".join(entry.path): entry for entry in root.walk()}
    pages = {"settings": _settings(root)}
    for name in ("network", "data", "train", "memory"):
        pages[name] = _section_page(by_path[name])
    for name, title, key, about in _CHOICES:
        pages[name] = _choice_page(title, key, about, by_path[key])
    pages["operators"] = _operators()
    pages["commands"] = _commands()
    return {name: re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n" for name, text in pages.items()}


def _settings(root: ReferenceEntry) -> str:
    lines = ["# Reference: the settings of a run", _NOTE]
    lines += ["These keys are at the top of a config. The sections have pages of their own: "]
    lines[-1] += ", ".join(
        f"[{name}]({name}.md)" for name in ("network", "data", "train", "memory")
    )
    lines[-1] += ".\n"
    for entry in root.entries:
        if entry.name not in ("network", "data", "train", "memory"):
            lines += _key(entry)
    return "\n".join(lines)


def _section_page(entry: ReferenceEntry) -> str:
    lines = [f"# Reference: the section `{entry.name}`", _NOTE, f"{entry.description}\n"]
    lines += _fence(entry.example)
    for below in entry.entries:
        lines += _key(below)
    return "\n".join(lines)


def _choice_page(title: str, key: str, about: str, choice: ReferenceEntry) -> str:
    lines = [f"# Reference: {title[0].lower()}{title[1:]}", _NOTE, f"{about}\n"]
    lines += _fence(choice.example)
    lines += ["| kind | about |", "|---|---|"]
    lines += [
        f"| [`{kind.name}`](#{kind.name}) | {_cell(kind.summary)} |" for kind in choice.entries
    ]
    lines.append("")
    for kind in choice.entries:
        lines += [f"## {kind.name}", "", f"{kind.description}\n", *_fence(kind.example)]
        if kind.entries:
            lines += ["| key | accepts | default | meaning | example |", "|---|---|---|---|---|"]
            lines += map(_row, kind.entries)
            lines.append("")
    return "\n".join(lines)


def _key(entry: ReferenceEntry, level: int = 2) -> list[str]:
    """Return the lines on a key, and on the keys below it if it is a section."""
    lines = [f"{'#' * level} {'.'.join(entry.path)}", "", f"{entry.description}\n"]
    if entry.accepts:
        lines.append(f"- Accepts: {entry.accepts}")
    if entry.kind != "section" or entry.default or entry.is_required:
        lines.append(f"- Default: {_default(entry)}")
    lines += ["", *_fence(entry.example)]
    if entry.path[: len(LAYERS)] == LAYERS and len(entry.path) == len(LAYERS):
        lines.append("The operators are listed in [operators](operators.md).\n")
        entries = [each for each in entry.entries if each.kind != "operator"]
    elif entry.shared != entry.path:
        lines.append(f"Its keys are those of `{'.'.join(entry.shared)}`.\n")
        own = [below for below in entry.walk() if below.path == below.shared]
        return [*lines, *(line for below in own for line in _key(below, level + 1))]
    else:
        entries = list(entry.entries)
    if entry.kind == "choice":
        page = next(name for name, _, key, _ in _CHOICES if key == ".".join(entry.shared))
        kinds = ", ".join(f"`{kind.name}`" for kind in entries)
        return [*lines, f"The kinds, see [{page}]({page}.md): {kinds}.\n"]
    for below in entries:
        lines += _key(below, min(level + 1, 4))
    return lines


def _row(key: ReferenceEntry) -> str:
    example = key.example.splitlines()
    shown = f"`{example[1].strip()}`" if len(example) == 2 else ""
    cells = (f"`{key.name}`", key.accepts, _default(key), key.description, shown)
    return f"| {' | '.join(map(_cell, cells))} |"


def _default(entry: ReferenceEntry) -> str:
    return "required" if entry.is_required else entry.default


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _fence(text: str, language: str = "yaml") -> list[str]:
    return [f"```{language}", text.rstrip("\n"), "```", ""] if text else []


def _operators() -> str:
    """Return the page of the operators, by family."""
    summaries = {each["name"]: each for each in operators()}
    lines = ["# Reference: operators", _NOTE]
    lines.append(
        "A layer is an operator's name with its parameters. `mxrun ops NAME` shows everything "
        "about one: tensors, parameters, formulas, gradients, kernels. Operators marked with * "
        "compute in float32 alone, also with `precision: bfloat16`.\n"
    )
    for family, title in _FAMILIES.items():
        lines += [f"## {title}", "", "| operator | also called | about |", "|---|---|---|"]
        for name, each in summaries.items():
            if OPERATORS.get(name).family is family:
                star = "*" if _computes_in_float32(name) else ""
                aliases = ", ".join(f"`{alias}`" for alias in each["aliases"])
                lines.append(f"| `{name}`{star} | {aliases} | {_cell(each['summary'])} |")
        lines.append("")
    return "\n".join(lines)


def _computes_in_float32(name: str) -> bool:
    known = OPERATORS.get(name)
    return known.precision is Precision.FLOAT32 and not known.is_view


def command_names() -> dict[str, Callable[..., None]]:
    """Return the functions of the commands by name; groups are left out."""
    outer = names_in("")
    names = [*outer, *(name for group in outer for name in names_in(group))]
    return {name: COMMANDS.get(name) for name in names if not names_in(name)}


def _commands() -> str:
    """Return the page of the commands, with their arguments and options."""
    lines = ["# Reference: commands", _NOTE, "`mxrun COMMAND --help` shows the same for one.\n"]
    lines += ["| command | about |", "|---|---|"]
    for name, function in command_names().items():
        summary = inspect.cleandoc(function.__doc__ or "").partition("\n")[0]
        lines.append(f"| [`{name}`](#{name.replace(' ', '-')}) | {_cell(summary)} |")
    lines.append("")
    for name, function in command_names().items():
        lines += [f"## {name}", "", *_command(name, function)]
    return "\n".join(lines)


def _command(name: str, function: Callable[..., None]) -> list[str]:
    """Return the lines on a command: usage, help with examples, arguments and options."""
    declared = get_type_hints(function).get(OPTIONS)
    arguments, options = [], []
    for field in [] if declared is None else declared_fields(declared):
        parameter, default = field.parameter, _usual(field)
        if isinstance(parameter, Option):
            value = "" if _has_kind(field, bool) else f" {parameter.metavar or _choices(field)}"
            options.append(("/".join(field.flags) + value, parameter.help, default))
        else:
            metavar = parameter.metavar
            usage = metavar if field.is_required else f"[{metavar}]"
            arguments.append((usage, metavar, parameter.help, default))
    text, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\b\n")
    examples, _, after = rest.partition("\n\n")
    usage = " ".join(["mxrun", name, *(each[0] for each in arguments)])
    lines = [f"`{usage}{' [OPTIONS]' if options else ''}`\n", text]
    lines += [*_fence(inspect.cleandoc(examples.partition("\n")[2]), "sh"), f"{after}\n"]
    rows = [*(each[1:] for each in arguments), *options]
    if rows:
        lines += ["| argument or option | meaning | default |", "|---|---|---|"]
        lines += [
            f"| `{_cell(name)}` | {_cell(help)} | {default} |" for name, help, default in rows
        ]
    return [*lines, ""]


def _has_kind(field: DeclaredField, kind: type) -> bool:
    return field.type is kind or kind in get_args(field.type)


def _choices(field: DeclaredField) -> str:
    """Return the values of a Literal, which may be None too."""
    values = [value for kind in (field.type, *get_args(field.type)) for value in get_args(kind)]
    return "|".join(value for value in values if isinstance(value, str))


def _usual(field: DeclaredField) -> str:
    if field.is_required:
        return "required"
    if field.parameter.usual is not None:
        return field.parameter.usual
    is_absent = field.default is None or field.default is False or field.default == ""
    return "" if is_absent else str(field.default)


def write_pages() -> None:
    """Write all pages, and remove those that are no longer generated."""
    pages = reference_pages()
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages()
