"""Algorithms whose clients keep a part of the model to themselves, while the server averages the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import model_validator

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange, Released
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.section import check_idle
from rayfl.errors import ScenarioError
from rayfl.local.state import Declaration, merged

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class PersonalParts(FedAvg):
    """FedAvg of the shared part of the model; each client keeps the part that `stays_local` names from its last update.

    `evaluation.client_model = "personal"` evaluates every client with its own part. In the global model, which clients
    that never took part use, that part stays as it was at the start of the phase. Client-level DP (`phases.N.dp`) is
    not supported: its noise would fall on that part, too.

    Example:
        >>> from torch import nn
        >>> from rayfl.algorithms import PersonalParts
        >>> class PersonalBiases(PersonalParts):
        ...     def stays_local(self, network):
        ...         return [name for name, _ in network.named_parameters() if name.endswith("bias")]
        >>> PersonalBiases().stays_local(nn.Linear(4, 2))
        ['bias']
    """

    no_relay: ClassVar[str] = "its clients keep a part of the model to themselves"
    sent_vectors: ClassVar[tuple[str, ...]] = ("shared",)

    @model_validator(mode="after")
    def _keeps_its_buffers(self) -> PersonalParts:
        check_idle(self, {"buffers": True}, "where clients keep a part of the model and its buffers")
        return self

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model, each=self.aggregation.each)
        self.apply(server, self.aggregated(server, answers, "shared"))

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains with the client's own part; answers with the change of everything else."""
        with client.discrete.apart("own part", self.stays_local):
            trained = yield from self.train_parts(client, self.personal_model(client, model))
        own = client.places_of(self.stays_local)
        client.state["own part"] = trained[own]
        return Answer(self.weight(client), trained=trained, shared=(trained - model) * ~own)

    def train_parts(self, client: ClientContext, start: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        """Trains both parts; by default together.

        Args:
            client: The client.
            start: float32 [length of the model], the client's own part combined with what the server sent.

        Returns:
            float32 [length of the model], the trained model vector.
        """
        return (yield from self.train(client, start))

    def releases(self) -> Released:
        raise ScenarioError("noise would also fall on what clients keep to themselves; use 'fedavg'")

    def has_personal_model(self) -> bool:
        return True

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        client.discrete.take("own part", self.stays_local)
        own = client.state.get("own part")
        if own is None:
            return model
        personal = model.clone()
        personal[client.places_of(self.stays_local)] = own
        return personal

    def client_state(self) -> Declaration:
        return merged([("the algorithm", {"own part": "phase"}), ("local training", super().client_state())])
