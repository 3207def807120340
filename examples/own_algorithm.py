"""Your own federated algorithm: FedAvg whose server keeps a momentum, as a class that the scenario names.

    python examples/own_algorithm.py            # in this process, a few seconds
    python examples/own_algorithm.py ray        # the same on Ray, the same bits

Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
2019 (FedAvgM): v <- beta v + mean delta, w <- w + lr v.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, PositiveFloat

import rayfl
from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class ServerMomentum(Algorithm):
    """Its fields are options in the scenario (`algorithm = { name = "...", momentum = 0.9 }`), checked by pydantic."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    server_lr: PositiveFloat = 1.0

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        """On the server: asks every client of the cohort once, and goes on with the reduced answers."""
        answers = yield Exchange(self.fit, server.model)
        delta, buffer_change = np.split(answers.mean("delta"), [server.num_params])
        velocity = self.momentum * server.recall("velocity", 0.0) + delta
        server.memory["velocity"] = velocity
        server.move(self.server_lr * velocity, buffer_change)

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        """On a client: local SGD as the scenario says, and what it changed, weighted by the client's examples."""
        return Answer(client.num_samples, delta=self.local_update(client, model) - model)


SCENARIO: dict[str, Any] = {
    "name": "own_algorithm",
    "title": "Spirals: FedAvg with server momentum",
    "data": {"name": "own_network_and_data:spirals", "clients": 20},
    "model": "own_network_and_data:Perceptron",
    "phases": [
        {
            "name": "federated",
            "algorithm": {"name": "own_algorithm:ServerMomentum", "momentum": 0.6},
            "rounds": 30,
            "cohort": 0.5,
            "local": {"lr": 0.3, "batch_size": 16, "epochs": 3},
        },
    ],
    "evaluation": {"every": 5},
}


def main(backend: str = "inline", *overrides: str) -> rayfl.Result:
    """Runs the scenario; overrides such as `phases.0.algorithm.momentum=0.9` replace its values."""
    return rayfl.run(SCENARIO, overrides=overrides, backend="ray" if backend == "ray" else "inline")


if __name__ == "__main__":
    main(*sys.argv[1:])
