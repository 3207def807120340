"""FedAsync: the server mixes every client's model into its own as soon as it arrives.

Xie, Koyejo and Gupta, "Asynchronous Federated Optimization", 2019, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from rayfl.config.asynchronous import FullyAsynchronousPhase
from rayfl.config.scenario import Scenario
from rayfl.engine.backend import Ref
from rayfl.engine.schedules.asynchronous import Asynchronous
from rayfl.engine.updates_on_hosts import Submitted
from rayfl.errors import ScenarioError
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.round_index import RoundIndex


class FullyAsynchronous(Asynchronous):
    """w <- (1 - a) w + a w_i with a = alpha s(tau): a step by a (w_i - w), which the server optimizer may change."""

    config = FullyAsynchronousPhase
    noun = "asynchronous phase"

    @classmethod
    def check(cls, plan: PhasePlan, scenario: Scenario) -> None:
        """See `Schedule.check`."""
        super().check(plan, scenario)
        if "delta" not in plan.algorithm.sent_vectors:
            raise ScenarioError(
                f"algorithm: clients of '{plan.phase.algorithm.name}' do not answer with a model that the server could "
                "mix with its own; use another algorithm, such as 'fedavg', or schedule = 'buffered'"
            )

    def step(self, index: RoundIndex, answered: Sequence[Submitted]) -> Ref:
        """See `Asynchronous.step`."""
        (each,) = answered
        assert isinstance(self.phase, FullyAsynchronousPhase)
        share = self.phase.mixing * self.discount(index, each.round)
        return self.backend.server.call("mix", index, each.round, share, each.part)
