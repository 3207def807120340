"""Ditto: beside the global model, every client trains a personal model that is pulled towards the global one.

Li, Hu, Beirami and Smith, "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, alg. 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import NonNegativeFloat

from rayfl.algorithms.exchange import Answer
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.sample_request import SampleRequest
from rayfl.local.requests import Affine, LocalTraining
from rayfl.local.state import Declaration, merged

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class Ditto(FedAvg):
    """Adds personal models to FedAvg: v_k <- v_k - eta (grad F_k(v_k) + lambda (v_k - w)).

    FedAvg's training of w stays bitwise the same. v_k, the client's personal model, starts from the first global model
    that the client receives and stays on the client. (In the paper it starts from the initial global model, which is
    the same under full participation.) It is trained as `local` says, after the client's update of w; the steps and the
    training loss of a round cover both. Regularisers (`penalties`) apply to w only. `evaluation.client_model =
    "personal"` evaluates the v_k; a client that never took part uses the global model.

    Example-level DP (`local.dp`): both trainings are noised and charged, although the personal model never leaves the
    client.

    Attributes:
        mu: lambda, the weight of the pull, at least 0; 0 trains each personal model by itself. The paper
            tunes it for each data set.
    """

    no_relay: ClassVar[str] = "its personal models are trained beside the server's global model"

    mu: NonNegativeFloat = 0.1

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains the global model, then the personal one; answers with the change of the global model."""
        trained = yield from self.train(client, model)
        pull = Affine(quadratic=self.mu, centre=model[: client.num_params])
        start = client.state.get("personal", model)
        with client.discrete.apart("personal"):
            client.state["personal"] = yield LocalTraining(start, gradient=(pull,))
        return Answer(self.weight(client), delta=trained - model)

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return SampleRequest(), SampleRequest()

    def has_personal_model(self) -> bool:
        return True

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        client.discrete.take("personal")
        return client.state.get("personal", model)

    def client_state(self) -> Declaration:
        return merged([("the algorithm", {"personal": "phase"}), ("local training", super().client_state())])
