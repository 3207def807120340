"""Position of a round within the scenario, and the rounds of each phase, counted over the whole scenario."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rayfl.config.local import Local
from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.local.steps import rate_at


@dataclass(frozen=True)
class RoundIndex:
    """Position of a round within the scenario.

    Attributes:
        phase: Number of its phase, from 0.
        round: Number through the whole scenario, from 1.
        round_in_phase: Number within its phase, from 1.

    Example:
        >>> import rayfl
        >>> from rayfl.schedules import RoundIndex
        >>> scenario = rayfl.load_scenario("femnist_cyclic")
        >>> first_federated = RoundIndex(phase=1, round=101, round_in_phase=1)
        >>> first_federated.config(scenario).name
        'federated'
    """

    phase: int
    round: int
    round_in_phase: int

    def config(self, scenario: Scenario) -> Phase:
        """The round's phase."""
        return scenario.phases[self.phase]

    def decay_round(self, local: Local) -> int:
        """The round's number as `local.lr_decay_from` counts it, from 1."""
        return self.round if local.lr_decay_from == "scenario" else self.round_in_phase

    def lr(self, scenario: Scenario, local: Local | None = None) -> float:
        """The learning rate of this round, for the phase's local training or for other options."""
        local = local or self.config(scenario).local
        number = self.decay_round(local)
        drops = sum(after < number for after in local.lr_drops)
        lr = float(local.lr * local.lr_decay ** (number - 1) * local.lr_drop**drops)
        return lr * rate_at(local.round_schedule, self.round_in_phase, self.config(scenario).rounds)


def is_evaluated(index: RoundIndex, scenario: Scenario) -> bool:
    """Whether a round is evaluated however the run ends: one in `evaluation.every`, and the last of each phase."""
    return index.round_in_phase == index.config(scenario).rounds or index.round % scenario.evaluation.every == 0


class PhaseSpan(NamedTuple):
    """A phase and its first and last round, counted from 1 over the whole scenario."""

    name: str
    schedule: str
    first_round: int
    last_round: int


def phase_spans(phases: Iterable[tuple[str, str, int]]) -> tuple[PhaseSpan, ...]:
    """The spans of the phases that have rounds.

    Args:
        phases: Name, schedule and number of rounds of every phase, in order.
    """
    spans, end = [], 0
    for name, schedule, rounds in phases:
        if rounds:
            spans.append(PhaseSpan(name, schedule, end + 1, end + rounds))
        end += rounds
    return tuple(spans)
