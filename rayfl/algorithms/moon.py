"""MOON: a contrastive term draws a client's features to the global model's, away from its own previous model's.

Li, He and Song, "Model-Contrastive Federated Learning", CVPR 2021, eq. 3 and alg. 1.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import NonNegativeFloat, PositiveFloat

from rayfl.algorithms.algorithm import Need
from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState
from rayfl.algorithms.fedavg import FedAvg

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class MOON(FedAvg):
    """CE + mu * mean -log(e^(cos(z, z_g) / tau) / (e^(cos(z, z_g) / tau) + e^(cos(z, z_p) / tau))).

    z, z_g, z_p: features of the same augmented batch by the trained, the received and the client's previous model, the
    latter two in evaluation mode. The paper's network has a projection head before its classifier: choose the model
    `projected` for it; NIID-Bench has none.

    first: what stands for the previous model of a client that has none yet. `skip` (as MOON's code in its first round):
        no term; `initial`: the phase's first global model, sent along in every round. MOON's (later) and FedDecorr's
        code take a random network of the client's own, which is not offered.
    divide_by_tau: FedDecorr's code forgets to.
    """

    stateful: ClassVar[bool] = True

    mu: NonNegativeFloat = 1.0  # CyclicFL's is 0.1
    tau: PositiveFloat = 0.5
    first: Literal["skip", "initial"] = "skip"
    divide_by_tau: bool = True

    def needs(self) -> set[Need]:
        return super().needs() | {"features"}

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        first = [server.memory.setdefault("initial", server.model.copy())] if self.first == "initial" else []
        answers = yield Exchange(self.fit_contrasting, server.model, *first)
        self.update(server, answers, answers.mean("delta"))

    def fit_contrasting(self, client: Client, model: torch.Tensor, initial: torch.Tensor | None = None) -> Answer:
        if initial is not None:
            client.scratch["previous"] = initial
        return self.fit(client, model)

    def local_update(self, client: Client, received: torch.Tensor) -> torch.Tensor:
        trained = super().local_update(client, received)
        client.state["previous"] = trained
        return trained

    def loss(self, client: Client, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        from torch.linalg import vecdot, vector_norm
        from torch.nn.functional import cross_entropy, normalize, softplus

        previous = client.state.get("previous", client.scratch.get("previous"))
        if previous is None:
            return super().loss(client, x, y)
        features, logits = client.features(x)

        # -log(e^a / (e^a + e^b)) is softplus(b - a), and the difference of two cosines one scalar product
        def pull(examples: torch.Tensor) -> torch.Tensor:
            near, far = (normalize(client.features_of(model, examples)) for model in (client.received, previous))
            return (far - near) / self.tau if self.divide_by_tau else far - near

        lengths = vector_norm(features, dim=1).clamp_min(1e-12)  # as `normalize` does, in fewer operations
        contrast = softplus(vecdot(features, client.foreseen(x, pull)) / lengths).mean()
        return cross_entropy(logits, y) + self.mu * contrast
