"""FedBuff: the server steps by the discounted mean change of a buffer of answers.

Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS 2022, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from rayfl.config.asynchronous import BufferedPhase
from rayfl.engine.backend import Ref
from rayfl.engine.schedules.asynchronous import Asynchronous
from rayfl.engine.updates_on_hosts import Submitted
from rayfl.planning.round_index import RoundIndex


class Buffered(Asynchronous):
    """w <- w + step(sum_i p_i s(tau_i) delta_i), delta_i from the model that client i began with, and sum_i p_i = 1."""

    config = BufferedPhase
    noun = "buffered phase"

    def step(self, index: RoundIndex, answered: Sequence[Submitted]) -> Ref:
        """See `Asynchronous.step`."""
        discounts = [self.discount(index, each.round) for each in answered]
        scalars, _ = self.backend.server.call("receive", index, discounts, *[each.part for each in answered], returns=2)
        return scalars
