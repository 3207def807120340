"""Which round of the scenario is on, and what a visit in it reports."""

from __future__ import annotations

from dataclasses import dataclass

from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.engine.events import Traffic


@dataclass(frozen=True)
class Turn:
    """A round's place in the scenario: phase from 0; round, through the whole scenario, and round_in_phase from 1."""

    phase: int
    round: int
    round_in_phase: int

    def config(self, scenario: Scenario) -> Phase:
        return scenario.phases[self.phase]

    def lr(self, scenario: Scenario) -> float:
        """The local learning rate of this round: decay and drops count through all phases."""
        local = self.config(scenario).local
        drops = sum(after < self.round for after in local.lr_drops)
        return float(local.lr * local.lr_decay ** (self.round - 1) * local.lr_drop**drops)


@dataclass(frozen=True)
class VisitReport:
    """What visits gave and cost: the sum of each visit's step losses, all steps, and what the protocol would move."""

    loss_sums: tuple[float, ...]
    steps: int
    traffic: Traffic
