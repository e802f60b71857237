"""Words with which messages say what to do next, in a command and in Python."""

from __future__ import annotations

from mxrun.base.dataclass import dataclass


@dataclass(frozen=True)
class Advice:
    """Words for the options of an interface.

    resume, overwrite, other_name, allow_changes: what to write for each. resume_changed: to resume
    although data have changed. resume_action: subject of "continues", after a run has stopped.
    checkpoint: the option that selects one. newest_checkpoint: to select the newest.
    """

    resume: str
    overwrite: str
    other_name: str
    allow_changes: str
    resume_changed: str
    resume_action: str
    checkpoint: str
    newest_checkpoint: str

    @property
    def for_existing_run(self) -> str:
        """Advice for a run whose folder exists."""
        return (
            f"{self.resume} continues it, {self.overwrite} replaces it, "
            f"{self.other_name} makes another"
        )

    @property
    def for_diverged_evaluation(self) -> str:
        """Advice for a run with an evaluation that is not finite."""
        return (
            "the trained parameters are finite and saved; lower the learning rate "
            "(train.optimizer), or repair the records or transforms of data.eval and run again "
            f"with {self.resume_changed}"
        )


ON_COMMAND_LINE = Advice(
    resume="--resume",
    overwrite="--overwrite",
    other_name="name=OTHER",
    allow_changes="--allow-changes",
    resume_changed="--resume --allow-changes",
    resume_action="the same command with --resume",
    checkpoint="--checkpoint",
    newest_checkpoint="--checkpoint newest",
)
IN_PYTHON = Advice(
    resume="fit(resume=True)",
    overwrite="fit(overwrite=True)",
    other_name='{"name": "OTHER"}',
    allow_changes="allow_changes=True",
    resume_changed="fit(resume=True, allow_changes=True)",
    resume_action="fit(resume=True)",
    checkpoint="checkpoint",
    newest_checkpoint='checkpoint="newest"',
)
