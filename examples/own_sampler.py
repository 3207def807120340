"""Your own cohort sampler: clients with a high loss take part, unless they did in the last rounds.

python examples/own_sampler.py            # in this process, a few seconds
python examples/own_sampler.py ray        # the same on Ray, the same bits
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
    """Its fields are the other keys of `cohort = { sampler = "..." }`, checked by pydantic."""

    reads_scalars = True  # a round is drawn when those before it are over, so that what it sees is the same everywhere

    clients: PositiveInt
    rest: NonNegativeInt = 2

    def draw(self, context: SamplingContext) -> Sequence[int]:
        """The clients of a round: those that nobody has seen yet first, then by their last training loss."""
        last = context.state.setdefault("last", {})  # plain data, which is part of a run's snapshots
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
    "title": "Spirals: clients with a high loss take part, unless they did in the last rounds",
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
