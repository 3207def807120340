"""FedExP: the server extrapolates the clients' mean change as far as their disagreement allows.

Jhunjhunwala, Wang and Joshi, "FedExP: Speeding Up Federated Averaging via Extrapolation", ICLR 2023, eq. 6 and alg. 1.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat

from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState
from rayfl.algorithms.fedavg import FedAvg

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class FedExP(FedAvg):
    """w <- w + eta_g mean(delta_i), eta_g = max(1, mean ||delta_i||^2 / (2 (||mean(delta_i)||^2 + epsilon))).

    form: `paper`, as above. `code`: the authors' code, for epsilon, has |S| epsilon decay^(2 t) in round t, from 1
        (and weights by `samples`). `feddecorr`: FedDecorr's code, the paper's form with norms over the buffers too.
        `fedbug`: FedBug's code, without the factor 2 and with |S| for epsilon. With one participant all are FedAvg.
    report: the `average` of the last two models (in the paper and its code, from the second round on), while training
        goes on from the last; that `global` model itself (FedDecorr's code); or, as FedAvg has it, `all`.
    epsilon: 1e-3 for CIFAR and CINIC, 0.1 for EMNIST.
    """

    form: Literal["paper", "code", "feddecorr", "fedbug"] = "paper"
    # one model more than FedAvg's can be reported, which mypy takes for a field of another type
    report: Literal["average", "global", "all"] = "average"  # type: ignore[assignment]
    epsilon: NonNegativeFloat = 1e-3
    decay: Annotated[float, Field(gt=0, le=1)] = 0.998
    weighting: Literal["samples", "uniform"] = "uniform"
    server_lr: Annotated[float, Field(ge=1, le=1)] = 1.0

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        before = server.model.astype(np.float64)
        answers = yield Exchange(self.fit, server.model)
        rounds = server.memory.get("rounds", np.zeros(1)) + 1
        delta = answers.mean("delta")
        counted = delta if self.form == "feddecorr" else delta[: server.num_params]
        mean = float(np.sum(np.square(counted)))
        rate = self.extrapolation(float(answers.mean("squared_norm")[0]), mean, len(cohort), int(rounds[0]))
        self.update(server, answers, np.concatenate([rate * delta[: server.num_params], delta[server.num_params :]]))
        if self.report == "average" and rounds[0] > 1:
            server.reported = ((server.model + before) / 2).astype(np.float32)
        server.memory["rounds"] = rounds

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        delta = self.local_update(client, model) - model
        counted = delta if self.form == "feddecorr" else delta[: len(client.model.params)]
        squared = counted.double().square().sum().float().reshape(1)
        asides = self.asides(client, model, delta)
        return Answer(self.weight(client), asides=asides, delta=delta, squared_norm=squared)

    def extrapolation(self, squared_norm: float, mean: float, participants: int, round: int) -> float:
        """eta_g, from the mean of the changes' squared norms and the squared norm of their mean."""
        denominator = {
            "paper": 2 * (mean + self.epsilon),
            "feddecorr": 2 * (mean + self.epsilon),
            "code": 2 * (mean + participants * self.epsilon * self.decay ** (2 * round)),
            "fedbug": mean + participants,
        }[self.form]
        return max(1.0, squared_norm / denominator) if denominator else 1.0
