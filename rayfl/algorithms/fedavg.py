"""FedAvg: clients train locally, the server averages.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, alg. 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from rayfl.algorithms.algorithm import LocalTrainingAlgorithm, Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.fedopt import SGD, ServerOptimizerField
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.algorithms.state import Declaration

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class FedAvg(LocalTrainingAlgorithm):
    """w <- w + step(sum_i p_i (w_i - w)), p_i in proportion to the clients' sample counts, or uniform.

    Attributes:
        weighting: `samples` is the paper's and that of most code bases; `uniform` is FedBug's and FedBABU's code.
        server_optimizer: What the server does with the mean change: `sgd` (with lr = 1 it is the average), `momentum`,
            `adagrad`, `adam`, `yogi`, or your own.
    """

    weighting: Literal["samples", "uniform"] = "samples"
    server_optimizer: ServerOptimizerField = SGD()

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        self.apply(server, answers.mean("delta"))

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains from the global model; answers with the weighted change."""
        trained = yield from self.train(client, model)
        return Answer(self.weight(client), delta=trained - model)

    def weight(self, client: ClientContext) -> float:
        """The client's weight in the cohort's mean, p_i up to a common factor."""
        return client.num_samples if self.weighting == "samples" else 1.0

    def apply(self, server: ServerState, delta: np.ndarray) -> None:
        """Steps the parameters by the server optimizer, the buffers by their mean change.

        Args:
            server: The server's working copy.
            delta: float64 [length of the model], the mean change.
        """
        step = self.server_optimizer.step(server, delta[: server.num_params])
        server.apply_update(step, delta[server.num_params :])

    def server_state(self) -> Declaration:
        state: Declaration = self.server_optimizer.server_state()
        return state
