"""q-FFL: gives clients with larger losses larger weights, which evens out accuracy across clients.

Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020, algs. 1 (q-FedSGD) and 2 (q-FedAvg).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import NonNegativeFloat

from rayfl.algorithms.algorithm import Algorithm, Round
from rayfl.algorithms.exchange import Answer, Exchange, Part, Released
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.errors import RayflError, ScenarioError
from rayfl.local.queries import Gradient, Loss
from rayfl.local.state import Declaration, merged

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate

SMALLEST_LOSS = 1e-10
"""Added to F_k before raising it to a power, as in the authors' code."""

Change = tuple["torch.Tensor", "torch.Tensor | None"]
"""eta dw_k, [length of the model], and the model that the client trained, if it trains."""


class _QFFL(Algorithm):
    """w <- w - sum_k D_k / sum_k h_k, with D_k = F_k^q dw_k and h_k = q F_k^(q-1) ||dw_k||^2 + L F_k^q.

    F_k is the client's mean loss at the received model over all of its training samples; dw_k is the client's change
    divided by eta, the local learning rate; L = 1 / eta. q = 0 is the plain mean.

    Dividing every F_k^q by the same number leaves the quotient unchanged. A first exchange therefore finds the cohort's
    largest loss c, and a second one sums eta D_k / c^q and eta h_k / c^q, which neither vanish nor overflow for any q
    and any losses. Clients are not weighted by size; the authors instead sample them in proportion to their sizes
    (cohort `by_size`). Batch norm buffers, which the paper does not mention, are updated by the same quotient.

    Example-level DP (`local.dp`) is not supported: noise on the losses would swamp their powers. Client-level DP
    (`phases.N.dp`) is not supported: the largest loss is that of a single client.

    Attributes:
        q: Exponent of the losses, at least 0; larger values favour clients with larger losses more strongly.
    """

    no_relay: ClassVar[str] = "its weights need the losses of a cohort"

    answers_with: ClassVar[Part] = "model"

    q: NonNegativeFloat = 1.0

    def round(self, server: ServerState, context: RoundContext) -> Round:
        losses = yield Exchange(self.loss_update, server.model, up=(1,), with_first_model=False)
        largest = losses.maxima["loss"].astype(np.float32)
        up = (self.answers_with, 1)
        answers = yield Exchange(self.weighted_update, server.model, largest, down=(1,), up=up)
        curvature = answers.sums["curvature"][0]
        step = -answers.sums["direction"] / curvature
        if not (curvature > 0 and np.isfinite(step).all()):
            raise RayflError(f"q-FFL: with q = {self.q} and a largest loss of {largest[0]:g}, there is no valid step")
        server.report(largest_loss=largest[0])
        server.apply_update(step[: server.num_params], step[server.num_params :])

    def loss_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Answers with the client's mean loss, and keeps it for the second exchange."""
        loss = (yield Loss(model)) + SMALLEST_LOSS
        client.state["loss"] = loss
        return Answer(maxima={"loss": loss})

    def weighted_update(
        self, client: ClientContext, model: torch.Tensor, largest: torch.Tensor
    ) -> ClientUpdate[Answer]:
        """Answers with the curvature and the change, weighted by the loss relative to the cohort's largest."""
        loss = client.state.get("loss")
        if loss is None:  # lost with its worker
            loss = (yield Loss(model)) + SMALLEST_LOSS
        change, trained = yield from self.change(client, model)
        relative = loss / largest
        squared = change[: client.num_params].square().sum() / client.lr
        curvature = self.q * relative ** (self.q - 1) / largest * squared + relative**self.q
        return Answer(sums={"direction": relative**self.q * change, "curvature": curvature}, trained=trained)

    def no_sample_dp(self) -> str:
        return "its weights are powers of clients' losses, which noise would swamp; use 'fedavg'"

    def releases(self) -> Released:
        raise ScenarioError(
            "the largest loss of a cohort is that of a single client, which noise on sums does not hide; use 'fedavg'"
        )

    def requirements(self) -> set[Requirement]:
        return super().requirements() | {"plain_objective"}

    @abstractmethod
    def change(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Change]:
        """Returns eta dw_k, and the trained model if the client trains."""

    def client_state(self) -> Declaration:
        return {"loss": "round"}


class QFedAvg(_QFFL, LocalTrainingAlgorithm):
    """q-FFL with local training: eta dw_k = w - w_k, where w_k is the client's trained model.

    L = 1 / eta stands for the Lipschitz constant of the gradient, to which the learning rate of SGD is tuned. The rate
    of another optimizer says nothing about it, so q > 0 accepts only plain SGD. With an `lr_schedule`, eta is the rate
    before the schedule.
    """

    def assumes_sgd(self) -> str:
        return "h_k takes 1 / lr as the gradient's Lipschitz constant, which holds for SGD" if self.q else ""

    def change(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Change]:
        trained = yield from self.train(client, model)
        return model - trained, trained

    def client_state(self) -> Declaration:
        training = LocalTrainingAlgorithm.client_state(self)
        return merged([("the algorithm", _QFFL.client_state(self)), ("local training", training)])


class QFedSGD(_QFFL):
    """q-FFL with dw_k = the gradient of F_k at the received model, over all of the client's samples.

    There is no local training: only the learning rate of `local` is used. The authors' code computes the gradient on a
    single batch.
    """

    trains: ClassVar[bool] = False
    answers_with: ClassVar[Part] = "params"

    def change(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Change]:
        change = model.new_zeros(model.shape)
        change[: client.num_params] = client.lr * (yield Gradient(model))
        return change, None
