"""FedAvg: clients train locally, the server averages.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, alg. 1.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import PositiveFloat

from rayfl.algorithms.algorithm import Algorithm, Need
from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState
from rayfl.algorithms.last_models import mean_of_last, since_last

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class FedAvg(Algorithm):
    """w <- w + eta_g sum_i p_i (w_i - w), p_i in proportion to the clients' sample counts, or uniform.

    weighting: `samples` is the paper's and that of most code bases; `uniform` is FedBug's and FedBABU's code.
    buffers: of batch norm: `average` them with the parameters (MOON, NIID-Bench), or `keep` the server's
        (FedDyn, FedBug, FedExP: only learnable parameters are moved), for networks without running statistics.
    server_lr: eta_g; 1 is the average.
    report: the model that is evaluated: `global`, or the mean over `all` clients of what each returned last, which the
        code of FedDyn and FedBug evaluates too (FedBug's tables do not say which of the two they have).
    """

    weighting: Literal["samples", "uniform"] = "samples"
    buffers: Literal["average", "keep"] = "average"
    server_lr: PositiveFloat = 1.0
    report: Literal["global", "all"] = "global"

    def keeps_state(self) -> bool:
        return self.stateful or self.report == "all"

    def needs(self) -> set[Need]:
        return super().needs() | ({"no running statistics"} if self.buffers == "keep" else set())

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        answers = yield Exchange(self.fit, server.model)
        self.update(server, answers, answers.mean("delta"))

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        delta = self.local_update(client, model) - model
        return Answer(self.weight(client), asides=self.asides(client, model, delta), delta=delta)

    def asides(self, client: Client, model: torch.Tensor, delta: torch.Tensor) -> dict[str, torch.Tensor]:
        """What the report needs of a client whose model has changed by delta."""
        return since_last(client, model, delta) if self.report == "all" else {}

    def weight(self, client: Client) -> float:
        """The client's weight in the cohort's mean, p_i but for a common factor."""
        return client.num_samples if self.weighting == "samples" else 1.0

    def update(self, server: ServerState, answers: Answers, delta: np.ndarray) -> None:
        """Moves the parameters by the server's step, the buffers, where they are averaged, by their mean change.

        delta: float64 [length of the model], the mean change.
        """
        if self.report == "all":
            server.reported = mean_of_last(server, answers)
        buffers = delta[server.num_params :] if self.buffers == "average" else None
        server.move(self.step(server, delta[: server.num_params]), buffers)

    def step(self, server: ServerState, delta: np.ndarray) -> np.ndarray:
        """The server's step for a mean change of the parameters, float64 [length of params]."""
        return self.server_lr * delta
