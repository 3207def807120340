"""Your own cohort sampler: it picks clients with a high loss that were not in the last rounds.

python examples/own_sampler.py            # in this process, a few seconds
python examples/own_sampler.py ray        # on Ray, with bit-identical results
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from pydantic import NonNegativeInt, PositiveInt

import rayfl
from rayfl.algorithms import CohortSampler, SamplingContext


class HighLossAfterRest(CohortSampler):
    """The fields are the other keys of `cohort = { sampler = "..." }`, validated by pydantic."""

    reads_scalars = True  # rounds are drawn after all earlier ones, so they see the same losses everywhere

    clients: PositiveInt
    rest: NonNegativeInt = 2

    def draw(self, context: SamplingContext) -> Sequence[int]:
        """Returns the clients of a round: new ones first, then by their last training loss, highest first."""
        last = context.state.setdefault("last", {})  # plain data, saved in snapshots
        rested = [
            client
            for client in context.stream.permutation(len(context.sizes)).tolist()
            if context.round - last.get(str(client), -math.inf) > self.rest
        ]

        def loss(client: int) -> float:
            return context.scalars.get(client, {}).get("train_loss", math.inf)

        cohort = sorted(rested, key=loss, reverse=True)[: self.clients]
        last |= {str(client): context.round for client in cohort}
        return cohort


SCENARIO: dict[str, Any] = {
    "name": "own_sampler",
    "title": "Spirals: cohorts of clients with a high loss that were not in the last rounds",
    "data": {"name": "own_network_and_data:spirals", "clients": 20},
    "model": "own_network_and_data:Perceptron",
    "phases": [
        {
            "name": "federated",
            "rounds": 40,
            "cohort": {"sampler": "own_sampler:HighLossAfterRest", "clients": 6, "rest": 1},
            "local": {"lr": 0.3, "batch_size": 16, "epochs": 5},
        },
    ],
    "evaluation": {"every": 5},
}


def main(backend: str = "inline", *overrides: str) -> rayfl.Result:
    """Runs the scenario; overrides such as `phases.0.cohort.rest=0` replace its values."""
    return rayfl.run(SCENARIO, overrides=overrides, backend="ray" if backend == "ray" else "inline")


if __name__ == "__main__":
    main(*sys.argv[1:])
