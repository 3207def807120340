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
    """Checks that all clients have the same weight, as `phases.N.dp` requires.

    Raises:
        ScenarioError: Weights follow the clients' sample counts.
    """
    if weighting != "uniform":
        raise ScenarioError("weights reveal how many samples a client has; use weighting = 'uniform'")


class FedAvg(LocalTrainingAlgorithm):
    """Clients train locally and the server averages: w <- w + step(sum_i p_i (w_i - w)).

    p_i is proportional to the clients' sample counts, or uniform; `step` is the server optimizer.

    Example-level DP (`local.dp`): local training is noised; everything the server does with it is free post-processing.
    Client-level DP (`phases.N.dp`): the change is clipped and noised; regularisers (`penalties`) act on the client
    only, and the server optimizer works on the noised mean.

    Attributes:
        weighting: Clients' weights: `samples`, as in the paper and most code, or `uniform`, as in FedBug's and
            FedBABU's code.
        server_optimizer: How the server applies the mean change: `sgd` (plain averaging with lr = 1), `momentum`,
            `adagrad`, `adam`, `yogi`, or your own `ServerOptimizer`.
        aggregation: How the server combines the changes: `mean`, `median`, `trimmed_mean`, `krum`, `geometric_median`,
            or your own `Aggregation`. Median, trimmed mean and Krum count every client once, as in their papers, and
            therefore need `weighting = "uniform"`: a client that lies about its update could lie about its sample count
            as well.

    Example:
        >>> import numpy as np
        >>> from rayfl.algorithms import FedAvg, ServerState
        >>> algorithm = FedAvg(server_optimizer={"name": "sgd", "lr": 0.5})
        >>> server = ServerState(model=np.zeros(2, np.float32), num_params=2, num_clients=10)
        >>> algorithm.apply(server, np.array([2.0, 4.0]))
        >>> server.model
        array([1., 2.], dtype=float32)
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
        """Returns the client's weight in the cohort's mean, p_i up to a common factor."""
        return client.num_samples if self.weighting == "samples" else 1.0

    def aggregated(self, server: ServerState, answers: Answers, name: str = "delta") -> np.ndarray:
        """Returns the aggregated change, float64 [length of the model].

        Distances are computed over what the protocol sends, without buffers that clients keep.

        Args:
            server: The server's working copy.
            answers: The cohort's answers.
            name: The vector to aggregate.
        """
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
        """Steps the parameters with the server optimizer and the buffers by their mean change.

        Args:
            server: The server's working copy.
            delta: float64 [length of the model], the aggregated change.
        """
        step = self.server_optimizer.step(server, delta[: server.num_params])
        server.apply_update(step, delta[server.num_params :])

    def releases(self) -> Released:
        check_uniform(self.weighting)
        if self.aggregation.each:
            raise ScenarioError(
                f"aggregation = '{self.aggregation.name}' reads the clients' updates one by one, but noise hides them "
                "only in a sum; use aggregation = 'mean'"
            )
        return Released({"delta": "model"})

    def server_state(self) -> Declaration:
        state: Declaration = self.server_optimizer.server_state()
        return state
