"""Recovery policy after an actor or node dies: whether to try again, after which pause, and when to give up."""

from __future__ import annotations

from dataclasses import dataclass

from rayfl.errors import ResourceError

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True)
class Chance:
    """One more attempt to continue.

    Attributes:
        number: Attempts since a round was last committed for the first time, including this one.
        most: The largest allowed number of attempts.
        pause_s: How long to wait first, since the cause may go away.
    """

    number: int
    most: int
    pause_s: float


class Recoveries:
    """The recoveries of one run; their number is unlimited as long as the run makes progress in between.

    Args:
        most: The largest number of attempts in a row without a newly committed round.
        repeatable: Whether rounds may be repeated (`Scenario.repeatable`).
    """

    def __init__(self, most: int, repeatable: bool = True) -> None:
        self._most, self._repeatable, self._in_row, self._furthest = most, repeatable, 0, 0

    def reached(self, round: int) -> None:
        """Records that a round was committed, for the first time or again."""
        if round > self._furthest:
            self._furthest, self._in_row = round, 0

    def next(self, error: ResourceError) -> Chance:
        """Returns the next attempt to continue.

        Args:
            error: The error that stopped the run or its latest attempt.

        Raises:
            ResourceError: That error, if the policy gives up; its message says why.
        """
        if self._in_row >= self._most:
            error.args = (f"{error}; {self._gives_up()}",)
            raise error
        self._in_row += 1
        return Chance(self._in_row, self._most, min(FIRST_PAUSE_S * 2 ** (self._in_row - 1), LONGEST_PAUSE_S))

    def _gives_up(self) -> str:
        if not self._repeatable:
            return (
                "the run does not continue by itself, since with `secure` noise a repeated update spends privacy "
                "again; `rayfl resume` continues after the last checkpoint and charges all repeated updates"
            )
        if not self._most:
            return "the run does not try again (resources.restarts is 0)"
        times = "once" if self._most == 1 else f"{self._most} times"
        return f"the run tried {times} to continue (resources.restarts) without committing another round"
