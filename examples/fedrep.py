"""FedRep: a representation that all clients learn, and a head for each, which trains first.

    python -m rayfl.scenario examples/fedrep.toml --backend inline

Collins, Hassani, Mokhtari and Shakkottai, "Exploiting Shared Representations for Personalized Federated Learning", ICML
2021, alg. 1: in every round a client fits its head to the body that the server sent, then trains the body under that
head, as `local` says, and sends it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt

from rayfl.algorithms import FedPer, SampleRequest

if TYPE_CHECKING:
    import torch

    from rayfl.local import ClientContext, ClientUpdate


class FedRep(FedPer):
    """FedPer, but head and body take turns.

    head_epochs: tau, for which the authors' code takes 10 epochs on CIFAR-10.
    """

    keeps: Literal["head"] = "head"
    head_epochs: PositiveInt = 10

    def train_parts(self, client: ClientContext, start: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        fitted = yield from self.train(client, start, train="head", epochs=self.head_epochs)
        return (yield from self.train(client, fitted, train="body"))

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        """For `local.dp`: both trainings are noised and charged."""
        return SampleRequest(epochs=self.head_epochs), SampleRequest()
