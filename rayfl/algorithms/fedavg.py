"""FedAvg: clients train locally, the server averages.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, alg. 1.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Literal

from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class FedAvg(Algorithm):
    """w <- w + sum_i p_i (w_i - w), p_i in proportion to the clients' sample counts, or uniform.

    weighting: `samples` is the paper's and that of most code bases; `uniform` is FedBug's and FedBABU's code.
    buffers: of batch norm: `average` them with the parameters (MOON, NIID-Bench), or `keep` the server's
        (FedDyn, FedBug, FedExP: only learnable parameters are moved).
    """

    weighting: Literal["samples", "uniform"] = "samples"
    buffers: Literal["average", "keep"] = "average"

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        answers = yield Exchange(self.fit, server.model)
        delta = answers.mean("delta")
        moved = slice(None) if self.buffers == "average" else slice(server.num_params)
        server.model[moved] += delta[moved]

    def fit(self, client: Client, model: torch.Tensor) -> Answer:
        weight = client.num_samples if self.weighting == "samples" else 1
        return Answer(weight, delta=self.local_update(client, model) - model)
