"""FedBN: clients keep their batch norm to themselves, parameters and statistics; everything else is averaged.

Li, Jiang, Zhang, Kamp and Dou, "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR
2021, alg. 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import model_validator

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange, Released
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.section import check_idle
from rayfl.errors import ScenarioError
from rayfl.local.state import Declaration, merged

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class FedBN(FedAvg):
    """FedAvg of all that lies outside of batch norm layers; a client starts with its own batch norm of its last update.

    `evaluation.client_model = "personal"` scores every client with its own batch norm. The global model, for clients
    that never took part, has the mean of what the participants' batch norm became, as `buffers = "keep"` has of its
    statistics; no protocol sends it, and a client's first update starts from it. (In the paper all clients always take
    part.) Refused with `local.dp`, as batch norm mixes samples.

    It has no client-level privacy (`phases.N.dp`): the global model has the mean of what clients keep to themselves.
    """

    no_relay: ClassVar[str] = "its clients keep their batch norm to themselves"
    sent_vectors: ClassVar[tuple[str, ...]] = ("shared",)

    @model_validator(mode="after")
    def _keeps_statistics(self) -> FedBN:
        check_idle(self, {"buffers": True}, "with 'fedbn', whose clients keep batch norm's statistics anyway")
        return self

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model, each=self.aggregation.each)
        self.apply(server, self.aggregated(server, answers, "shared"))
        server.model += answers.sums["kept"] / answers.weight

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains with the client's own batch norm; answers with the change of everything else."""
        trained = yield from self.train(client, self.personal_model(client, model))
        own, weight = client.places_of(self.stays_local), self.weight(client)
        client.state["batch norm"] = trained[own]
        change = trained - model
        kept = {"kept": weight * change * own}
        return Answer(weight, diagnostics=kept, trained=trained, shared=change * ~own)

    def releases(self) -> Released:
        raise ScenarioError("batch norm's statistics cannot be clipped; use 'fedavg' and a network without batch norm")

    def stays_local(self, module: nn.Module) -> bool:
        from torch.nn.modules.batchnorm import _BatchNorm

        return isinstance(module, _BatchNorm)

    def has_personal_model(self) -> bool:
        return True

    def personal_model(self, client: ClientContext, model: torch.Tensor) -> torch.Tensor:
        own = client.state.get("batch norm")
        if own is None:
            return model
        personal = model.clone()
        personal[client.places_of(self.stays_local)] = own
        return personal

    def requirements(self) -> set[Requirement]:
        return {*super().requirements(), "batch_norm"}

    def client_state(self) -> Declaration:
        return merged([("the algorithm", {"batch norm": "phase"}), ("local training", super().client_state())])
