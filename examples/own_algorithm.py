"""Your own federated algorithm: FedAvg with server momentum, as a class that the scenario names.

    python examples/own_algorithm.py            # in this process, a few seconds
    python examples/own_algorithm.py ray        # on Ray, with bit-identical results

Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification",
2019 (FedAvgM): v <- beta v + mean delta, w <- w + lr v.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, PositiveFloat

import rayfl
from rayfl.algorithms import Answer, Declaration, Exchange, LocalTrainingAlgorithm, Round, RoundContext, ServerState

if TYPE_CHECKING:
    import torch

    from rayfl.local import ClientContext, ClientUpdate


class ServerMomentum(LocalTrainingAlgorithm):
    """The fields are options in the scenario (`algorithm = { name = "...", momentum = 0.9 }`), checked by pydantic."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    server_lr: PositiveFloat = 1.0

    def round(self, server: ServerState, context: RoundContext) -> Round:
        """On the server: sends the model to every client of the cohort and uses their reduced answers."""
        answers = yield Exchange(self.client_update, server.model)
        delta, buffer_change = np.split(answers.mean("delta"), [server.num_params])
        velocity = self.momentum * server.get("velocity", 0.0) + delta
        server.keep("velocity", velocity)
        server.report(velocity_norm=float(np.linalg.norm(velocity)))  # appears in metrics.jsonl
        server.apply_update(self.server_lr * velocity, buffer_change)

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """On a client: trains with the settings of the scenario; answers with the change, weighted by its samples."""
        trained = yield from self.train(client, model)
        return Answer(client.num_samples, delta=trained - model)

    def server_state(self) -> Declaration:
        """Declares the state that the server keeps, and its scope."""
        return {"velocity": "phase"}


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
