"""Power of choice: among some candidates, the clients with the highest losses take part.

Cho, Wang and Joshi, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection
Strategies", 2020, its variant rpow-d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import PositiveInt

from rayfl.algorithms.sampler import CohortSampler, SamplingContext
from rayfl.errors import ScenarioError


class PowerOfChoice(CohortSampler):
    """Draws d candidates in proportion to their sizes, without replacement; the m with the highest losses take part.

    A candidate's loss is the mean over its local steps when it last took part; a client that never took part counts as
    having infinite loss. Ties go to those drawn first. (The paper's pow-d instead asks every candidate for its loss at
    the current model, which costs a message and a pass over its data.)

    Attributes:
        clients: m, the size of the cohort.
        candidates: d, from m to the number of clients; d = m is sampling by size.
    """

    reads_scalars = True

    name: str = "power_of_choice"
    clients: PositiveInt
    candidates: PositiveInt

    def draw(self, context: SamplingContext) -> Sequence[int]:
        shares = context.sizes / context.sizes.sum()
        drawn = context.stream.choice(len(shares), self.candidates, replace=False, p=shares)
        candidates = [int(client) for client in drawn]

        def last_loss(client: int) -> float:
            return context.scalars.get(client, {}).get("train_loss", math.inf)

        return sorted(candidates, key=last_loss, reverse=True)[: self.clients]

    def cohort_sizes(self, num_clients: int) -> tuple[int, int]:
        if not self.clients <= self.candidates <= num_clients:
            raise ScenarioError(
                f"'power_of_choice' needs clients <= candidates <= {num_clients}, the number of clients, but has "
                f"clients = {self.clients} and candidates = {self.candidates}"
            )
        return self.clients, self.clients
