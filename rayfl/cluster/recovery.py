"""What becomes of a run of which something died: whether it goes on, after what pause, and when it gives up."""

from __future__ import annotations

from dataclasses import dataclass

from rayfl.errors import ResourceError

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True)
class Chance:
    """One more to go on.

    Attributes:
        number: Tries since a round was last committed that had not been before, this one included.
        most: How many of them there may be.
        pause_s: How long to wait first: what killed an actor may go away.
    """

    number: int
    most: int
    pause_s: float


class Recoveries:
    """Those of one run. It goes on as often as it must, as long as it gets any further in between.

    Args:
        most: Tries in a row, without a round that had not been committed before.
        repeatable: Whether rounds may be repeated: `Scenario.repeatable`.
    """

    def __init__(self, most: int, repeatable: bool = True) -> None:
        self._most, self._repeatable, self._in_row, self._furthest = most, repeatable, 0, 0

    def reached(self, round: int) -> None:
        """Takes in that a round was committed, for the first time or again."""
        if round > self._furthest:
            self._furthest, self._in_row = round, 0

    def next(self, error: ResourceError) -> Chance:
        """The next attempt to go on.

        Args:
            error: What stopped the run, or its latest attempt to go on.

        Raises:
            ResourceError: That error, with what was tried.
        """
        if self._in_row >= self._most:
            error.args = (f"{error}; {self._gives_up()}",)
            raise error
        self._in_row += 1
        return Chance(self._in_row, self._most, min(FIRST_PAUSE_S * 2 ** (self._in_row - 1), LONGEST_PAUSE_S))

    def _gives_up(self) -> str:
        if not self._repeatable:
            return (
                "nothing is started again by itself, since noise is `secure`: an update that is repeated spends "
                "privacy again; `rayfl resume` goes on after the last checkpoint, and charges all that is repeated"
            )
        if not self._most:
            return "nothing is started again (resources.restarts is 0)"
        times = "once" if self._most == 1 else f"{self._most} times"
        return f"it was tried {times} to go on (resources.restarts), and no further round was committed since"
