"""q-FFL: clients with a larger loss weigh more, so that accuracies come out more even.

Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020, alg. 1 (q-FedSGD) and 2 (q-FedAvg).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import NonNegativeFloat

from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState
from rayfl.errors import RayflError

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client

SMALLEST_LOSS = 1e-10
"""Added to F inside the powers, as in the authors' code."""


class QFedAvg(Algorithm):
    """w <- w - sum_k D_k / sum_k h_k with L = 1 / eta and dw_k = L (w - w_k), where w_k is the client's trained model.

    D_k = F_k^q dw_k and h_k = q F_k^(q-1) ||dw_k||^2 + L F_k^q; F_k is the client's mean loss at the received model,
    on all of its training examples. q = 0 is the plain mean. Sums are kept of eta D_k and eta h_k, whose quotient is
    the same. Clients are weighted alike; the authors draw them in proportion to their sizes (cohort by_size).
    Buffers of batch norm, of which the paper knows nothing, follow the same quotient.
    """

    q: NonNegativeFloat = 1.0

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        answers = yield Exchange(self.fit, server.model)
        curvature = answers.sums["curvature"]
        if not curvature[0] > 0:
            raise RayflError(
                f"q-FFL: losses to the power of q = {self.q} vanish in sums of multiples of 2**-fraction_bits; use a "
                "smaller q, or more numerics.fraction_bits"
            )
        step = -answers.sums["direction"] / curvature
        server.move(step[: server.num_params], step[server.num_params :])

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        loss = client.mean_loss(model) + SMALLEST_LOSS
        return self.answer(client, loss, model - self.local_update(client, model))

    def answer(self, client: Client, loss: torch.Tensor, change: torch.Tensor) -> Answer:
        """loss: [1] F_k. change: [length of the model] eta dw_k."""
        squared = change[: len(client.model.params)].square().sum() / client.lr
        curvature = self.q * loss ** (self.q - 1) * squared + loss**self.q
        return Answer(1.0, sums={"direction": loss**self.q * change, "curvature": curvature})


class QFedSGD(QFedAvg):
    """q-FedAvg with dw_k = the gradient of F_k at the received model, on all of the client's examples.

    No local training: of `local` only the rate is used, and there is no relay of it. The authors' code takes the
    gradient on one batch.
    """

    trains: ClassVar[bool] = False

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        loss = client.mean_loss(model) + SMALLEST_LOSS
        change = model.new_zeros(model.shape)
        gradient = client.mean_gradient(model)
        change[: len(gradient)] = client.lr * gradient
        return self.answer(client, loss, change)
