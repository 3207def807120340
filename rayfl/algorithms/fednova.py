"""FedNova: normalises client updates, so that clients with more local steps do not pull the average further.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020, eq. 9
and section 4.2 for local momentum and proximal terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import model_validator

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange, Released
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.penalty import Proximal
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    import torch

    from rayfl.config.local import Local
    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class FedNova(FedAvg):
    """w <- w + tau_eff sum_i p_i (w_i - w) / tau_i, tau_eff = sum_i p_i tau_i; with equal steps it is FedAvg.

    tau_i is ||a_i||_1, where the client's change is eta times a combination of its gradients with coefficients a_i. It
    is the number of steps, or with momentum rho (K - rho (1 - rho^K) / (1 - rho)) / (1 - rho). With an `lr_schedule`
    the coefficients include the rate of each step, and eta is the rate before the schedule. A proximal term makes it
    (1 - (1 - eta mu)^K) / (eta mu), without momentum. The change made by an adaptive optimizer is not such a
    combination, so only plain SGD is accepted. Buffers are averaged without rescaling.
    Gradual unfreezing does not change tau_i.

    Example-level DP (`local.dp`): training is noised; tau_i follows from the number of samples, which is public, and is
    free. Client-level DP (`phases.N.dp`) is not supported: tau_i reveals how many samples a client has.
    """

    no_stale_answers: ClassVar[str] = "it averages changes and steps separately, and would discount an answer twice"
    sent_vectors: ClassVar[tuple[str, ...]] = ("change",)

    @model_validator(mode="after")
    def _takes_means(self) -> FedNova:
        if self.aggregation.name != "mean":
            raise ValueError(
                f"aggregation = '{self.aggregation.name}' is not defined for 'fednova', whose step is a mean of "
                "changes times a mean of steps; use it with 'fedavg'"
            )
        return self

    def check_training(self, task: Any, local: Local, sizes: np.ndarray) -> None:
        super().check_training(task, local, sizes)
        if self._mu and local.momentum:
            raise ScenarioError(
                "algorithm.penalties: 'fednova' has no weights of the steps for a proximal term with momentum; set "
                "local.momentum = 0, or leave one out"
            )

    @property
    def _mu(self) -> float:
        return sum(penalty.mu for penalty in self.penalties if isinstance(penalty, Proximal))

    def releases(self) -> Released:
        raise ScenarioError(
            "clients answer with their numbers of steps, which reveal their sample counts; use 'fedavg' with "
            "local.steps, which is equivalent if all clients take the same number of steps"
        )

    def assumes_sgd(self) -> str:
        return "it divides a client's change by the weights that SGD gives its gradients"

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model, up=("model", 1))
        rescaled = answers.mean("steps") * answers.mean("change")
        self.apply(server, np.concatenate([rescaled, answers.mean("buffer_change")]))

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains from the global model; answers with the change per step and the number of steps."""
        trained = yield from self.train(client, model)
        delta = trained - model
        steps = client.effective_steps(client.local.momentum, self._mu)
        return Answer(
            self.weight(client),
            trained=trained,
            change=delta[: client.num_params] / steps,
            steps=delta.new_full((1,), steps),
            buffer_change=delta[client.num_params :],
        )
