"""[checkpoint]: when a run writes down all that it needs to go on after whatever ends it."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from rayfl.config.section import Section


class Checkpoint(Section):
    """When a checkpoint is written, how many are kept, and what happens where one cannot be written.

    Checkpoints are written beside the training, in the run's folder. A run that was interrupted, killed or lost with
    its machine goes on from the last one (`rayfl resume`) and ends with the bits of an undisturbed run. With `secure`
    noise it has other bits, and is charged for what it repeats.

    Attributes:
        minutes: At the first round that ends so many minutes after the last checkpoint; 0 for never.
        rounds: At the first round that ends so many rounds after the last checkpoint, once that is written; 0 for
            never.
        ends: Also at the end of each phase, of runs that have lasted for a minute by then or whose noise is `secure`,
            and when the run is interrupted (Ctrl-C, SIGTERM): it then ends with the round under way, and at a second
            signal at once.
        keep: How many of the latest are kept. The one before the last is for a last one that turns out to be damaged.
        on_failure: `continue` warns where a checkpoint or the run's metrics cannot be written, as on a full disk or in
            a folder that was removed, and tries again when the next is due; `stop` ends the run. Either way the
            last good checkpoint stays.
    """

    minutes: NonNegativeFloat = 10.0
    rounds: NonNegativeInt = 0
    ends: bool = True
    keep: PositiveInt = 2
    on_failure: Literal["continue", "stop"] = "continue"
