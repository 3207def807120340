"""FedRep: a shared representation and one head per client, which trains first.

    python -m rayfl.scenario examples/fedrep.toml --backend inline

Collins, Hassani, Mokhtari and Shakkottai, "Exploiting Shared Representations for Personalized Federated Learning", ICML
2021, alg. 1: in every round, a client fits its head to the body from the server, then trains the body with that
head fixed, with the settings of `local`, and sends the body back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt

from rayfl.algorithms import FedPer, SampleRequest

if TYPE_CHECKING:
    import torch

    from rayfl.local import ClientContext, ClientUpdate


class FedRep(FedPer):
    """FedPer, but head and body train one after the other.

    Attributes:
        head_epochs: tau; the authors' code uses 10 epochs on CIFAR-10.
    """

    keeps: Literal["head"] = "head"
    head_epochs: PositiveInt = 10

    def train_parts(self, client: ClientContext, start: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        fitted = yield from self.train(client, start, train="head", epochs=self.head_epochs)
        return (yield from self.train(client, fitted, train="body"))

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        """With `local.dp`, noise is added to both trainings and both are charged."""
        return SampleRequest(epochs=self.head_epochs), SampleRequest()
