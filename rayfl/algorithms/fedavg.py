"""FedAvg: clients train locally, the server averages.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, alg. 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import model_validator

from rayfl.algorithms.aggregation import AggregationField, Mean
from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Answers, Exchange, Released
from rayfl.algorithms.fedopt import SGD, ServerOptimizerField
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.errors import ScenarioError
from rayfl.local.state import Declaration

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


def check_uniform(weighting: str) -> None:
    """Checks that clients have the same weight, as `phases.N.dp` needs.

    Raises:
        ScenarioError: Weights follow the clients' numbers of samples.
    """
    if weighting != "uniform":
        raise ScenarioError("weights tell how many samples a client has; use weighting = 'uniform'")


class FedAvg(LocalTrainingAlgorithm):
    """w <- w + step(sum_i p_i (w_i - w)), p_i in proportion to the clients' sample counts, or uniform.

    With client-level privacy (`phases.N.dp`) the change is clipped and noised; penalties stay at the client, and the
    server's optimizer works on what is released.

    Attributes:
        weighting: `samples` is the paper's and that of most code bases; `uniform` is FedBug's and FedBABU's code.
        server_optimizer: What the server does with the mean change: `sgd` (with lr = 1 it is the average), `momentum`,
            `adagrad`, `adam`, `yogi`, or your own.
        aggregation: What the server makes of the changes: their `mean`, or from each of them the `median`,
            `trimmed_mean`, `krum`, `geometric_median`, or your own. Median, trimmed mean and Krum count every client
            once, as in their papers, hence need `weighting = "uniform"`: who may lie could lie about its samples too.

    With `local.dp` training is noised; what the server makes of it is free.
    """

    weighting: Literal["samples", "uniform"] = "samples"
    server_optimizer: ServerOptimizerField = SGD()
    aggregation: AggregationField = Mean()

    @model_validator(mode="after")
    def _weights_mean_something(self) -> FedAvg:
        if self.weighting == "samples" and not self.aggregation.takes_weights:
            raise ValueError(
                f"weighting = 'samples' has no meaning with aggregation = '{self.aggregation.name}', which counts "
                "every client once; use weighting = 'uniform'"
            )
        return self

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model, each=self.aggregation.each)
        self.apply(server, self.aggregated(server, answers))

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains from the global model; answers with the weighted change."""
        trained = yield from self.train(client, model)
        return Answer(self.weight(client), delta=trained - model)

    def weight(self, client: ClientContext) -> float:
        """The client's weight in the cohort's mean, p_i up to a common factor."""
        return client.num_samples if self.weighting == "samples" else 1.0

    def aggregated(self, server: ServerState, answers: Answers, name: str = "delta") -> np.ndarray:
        """float64 [length of the model]: one change of all clients', distances being over what the protocol sends."""
        aggregated: np.ndarray = self.aggregation.of(
            answers, name, None if self.buffers_are_sent() else server.num_params
        )
        return aggregated

    def check_cohort(self, smallest: int, largest: int) -> None:
        try:
            self.aggregation.check_cohort(smallest, largest)
        except ScenarioError as error:
            raise ScenarioError(f"aggregation: {error}") from None

    def apply(self, server: ServerState, delta: np.ndarray) -> None:
        """Steps the parameters by the server optimizer, the buffers by their mean change.

        Args:
            server: The server's working copy.
            delta: float64 [length of the model], the mean change.
        """
        step = self.server_optimizer.step(server, delta[: server.num_params])
        server.apply_update(step, delta[server.num_params :])

    def releases(self) -> Released:
        check_uniform(self.weighting)
        if self.aggregation.each:
            raise ScenarioError(
                f"aggregation = '{self.aggregation.name}' reads the clients' updates one by one, and noise hides them "
                "in a sum alone; use aggregation = 'mean'"
            )
        return Released({"delta": "model"})

    def server_state(self) -> Declaration:
        state: Declaration = self.server_optimizer.server_state()
        return state
