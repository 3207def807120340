"""FedProto: clients share prototypes, the mean features of each class, instead of parameters.

    python -m rayfl.scenario examples/fedproto.toml --backend inline

Tan et al., "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI 2022, alg. 1. Here all
clients have the same network, and a prototype is the mean over all samples of its class; the authors' code averages
the clients' means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from pydantic import NonNegativeFloat

from rayfl.algorithms import (
    Algorithm,
    Answer,
    Declaration,
    Exchange,
    Requirement,
    Round,
    RoundContext,
    ServerState,
)
from rayfl.local import Features, Labels, LocalTraining

if TYPE_CHECKING:
    from rayfl.local import ClientContext, ClientUpdate, TrainingBatch


class FedProto(Algorithm):
    """Every client trains its own model; weight * mean ||f(x) - prototype of y||^2 / d is added to its loss.

    This follows the authors' code; the paper's regulariser is the distance itself.

    Attributes:
        head: The layer that reads the features.
        weight: lambda; 1 in the paper's table 1.
    """

    head: str
    weight: NonNegativeFloat = 1.0

    def round(self, server: ServerState, context: RoundContext) -> Round:
        shape = server.tensor(f"{self.head}.weight").shape  # [classes, d]
        prototypes, known = server.get("prototypes", np.zeros(shape)), server.get("known", np.zeros(shape[0]))
        size = prototypes.size + known.size
        send = server.model, prototypes.ravel().astype(np.float32), known.astype(np.float32)
        answers = yield Exchange(self.client_update, *send, down=(size,), up=(size,))
        count, summed = answers.sums["count"], answers.sums["features"].reshape(shape)
        seen = count > 0  # a class without samples in this round keeps its prototype
        server.keep("prototypes", np.where(seen[:, None], summed / np.maximum(count, 1)[:, None], prototypes))
        server.keep("known", np.maximum(known, seen))

    def client_update(
        self, client: ClientContext, model: torch.Tensor, prototypes: torch.Tensor, known: torch.Tensor
    ) -> ClientUpdate[Answer]:
        shared = prototypes.view(len(known), -1)

        def near_prototypes(batch: TrainingBatch) -> torch.Tensor:
            apart = (batch.features - shared[batch.y]).square().mean(dim=1) * known[batch.y]
            return self.weight * apart.mean()

        own = self.personal_model(client, model)
        client.state["own"] = own = yield LocalTraining(own, terms=(near_prototypes,), reads_features=True)
        features, labels = (yield Features(own)), (yield Labels())
        of_class = torch.nn.functional.one_hot(labels, len(known)).to(features.dtype)
        return Answer(sums={"features": (of_class.T @ features).flatten(), "count": of_class.sum(dim=0)}, trained=own)

    def has_personal_model(self) -> bool:
        return True

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        return client.state.get("own", model)

    def client_state(self) -> Declaration:
        return {"own": "phase"}

    def server_state(self) -> Declaration:
        return {"prototypes": "phase", "known": "phase"}

    def requirements(self) -> set[Requirement]:
        return {"features"}

    def no_sample_dp(self) -> str:
        return "it sends features of single samples; use an algorithm that sends gradients"
