"""FedNova: clients that take more local steps do not pull the average further.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020,
eq. 9 and section 4.2 for local momentum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import model_validator

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange, Messages, Released
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class FedNova(FedAvg):
    """w <- w + tau_eff sum_i p_i (w_i - w) / tau_i, tau_eff = sum_i p_i tau_i; equal steps make it FedAvg.

    tau_i is ||a_i||_1, where the client's change is eta times a combination of its gradients with coefficients a_i: the
    number of its steps, or with momentum rho: (K - rho (1 - rho^K) / (1 - rho)) / (1 - rho). With an `lr_schedule` the
    coefficients carry the rate of each step, eta being the rate before it. The change by an adaptive optimizer is no
    such combination, so only plain SGD is accepted. Buffers are averaged plainly. Gradual unfreezing does not change
    tau_i.

    It has no client-level privacy (`phases.N.dp`): tau_i tells how many samples a client has.
    With `local.dp` training is noised; tau_i follows from the number of samples, which is public, and is free.
    """

    no_stale_answers: ClassVar[str] = "it averages changes apart from steps, and would discount an answer twice"
    sent_vectors: ClassVar[tuple[str, ...]] = ("change",)

    @model_validator(mode="after")
    def _takes_means(self) -> FedNova:
        if self.aggregation.name != "mean":
            raise ValueError(
                f"aggregation = '{self.aggregation.name}' has no meaning with 'fednova', whose step is a mean of "
                "changes times a mean of steps; use it with 'fedavg'"
            )
        return self

    def releases(self) -> Released:
        raise ScenarioError(
            "clients answer with their numbers of steps, which tell their sizes; use 'fedavg' with local.steps, which "
            "is the same where all take as many"
        )

    def assumes_sgd(self) -> str:
        return "it divides a client's change by the weights that SGD gives its gradients"

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model, up=("model", 1))
        rescaled = answers.mean("steps") * answers.mean("change")
        self.apply(server, np.concatenate([rescaled, answers.mean("buffer_change")]))

    def messages(self) -> Messages:
        return [(("model",), ("model", 1))]

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains from the global model; answers with the change per step and the number of steps."""
        trained = yield from self.train(client, model)
        delta = trained - model
        steps = client.effective_steps(client.local.momentum)
        return Answer(
            self.weight(client),
            trained=trained,
            change=delta[: client.num_params] / steps,
            steps=delta.new_full((1,), steps),
            buffer_change=delta[client.num_params :],
        )
