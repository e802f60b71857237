"""Words with which messages say what to do next, in a command and in Python."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """Words for the options of an interface.

    resume, overwrite, other_name, allow_changes: what to write for each. resume_action: subject of
    "continues", after a run has stopped.
    """

    resume: str
    overwrite: str
    other_name: str
    allow_changes: str
    resume_action: str

    @property
    def for_existing_run(self) -> str:
        """What to do if a run's folder exists."""
        return (
            f"{self.resume} continues it, {self.overwrite} replaces it, "
            f"{self.other_name} makes another"
        )


ON_COMMAND_LINE = Advice(
    resume="--resume",
    overwrite="--overwrite",
    other_name="name=OTHER",
    allow_changes="--allow-changes",
    resume_action="the same command with --resume",
)
IN_PYTHON = Advice(
    resume="fit(resume=True)",
    overwrite="fit(overwrite=True)",
    other_name='{"name": "OTHER"}',
    allow_changes="allow_changes=True",
    resume_action="fit(resume=True)",
)
