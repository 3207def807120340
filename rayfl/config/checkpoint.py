"""[checkpoint]: when a run writes the checkpoints from which it can be resumed."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from rayfl.config.section import Section


class Checkpoint(Section):
    """When a checkpoint is written, how many are kept, and what happens if one cannot be written.

    Checkpoints are written in the run's folder while training continues. A run that was interrupted, killed or lost
    with its machine resumes from the last one (`rayfl resume`) and ends with the same bits as an uninterrupted run.
    With `secure` noise the bits differ, and the run is charged for the rounds that it repeats.

    Attributes:
        minutes: Writes a checkpoint at the end of the first round that ends this many minutes after the last one; 0 for
            never. Default: 10.
        rounds: Writes a checkpoint at the end of the first round that ends this many rounds after the last one, once
            that one is written; 0, the default, for never.
        ends: Whether to write a checkpoint also at the end of each phase, if the run has lasted for a minute by then or
            its noise is `secure`, and when the run is interrupted (Ctrl-C, SIGTERM, SIGHUP): the run then stops after
            the current round, or immediately at a second signal. Default: true.
        keep: Number of latest checkpoints to keep, at least 1. Default: 2; the older one is used if the last turns out
            to be damaged.
        on_failure: `continue` (the default) prints a warning if a checkpoint or the run's metrics cannot be written,
            for example because the disk is full or the folder was removed, and tries again when the next checkpoint is
            due; `stop` ends the run. The last good checkpoint is kept either way.
    """

    minutes: NonNegativeFloat = 10.0
    rounds: NonNegativeInt = 0
    ends: bool = True
    keep: PositiveInt = 2
    on_failure: Literal["continue", "stop"] = "continue"
