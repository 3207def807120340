"""FedBN: clients keep their batch norm parameters and statistics; everything else is averaged.

Li, Jiang, Zhang, Kamp and Dou, "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR
2021, alg. 1.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange, Released
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.personal_parts import PersonalParts
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class FedBN(PersonalParts):
    """FedAvg of everything outside batch norm layers; a client reuses its own batch norm from its last update.

    `evaluation.client_model = "personal"` evaluates every client with its own batch norm. In the global model, which
    clients that never took part use and a client's first update starts from, batch norm is the mean of what the
    participants' became, like the statistics under `buffers = "keep"`; no protocol sends it. (In the paper all clients
    take part in every round.)

    Example-level DP (`local.dp`) is not supported, because batch norm mixes samples. Client-level DP (`phases.N.dp`) is
    not supported: the global model contains the mean of what clients keep to themselves.
    """

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model, each=self.aggregation.each)
        self.apply(server, self.aggregated(server, answers, "shared"))
        server.model += answers.sums["kept"] / answers.weight

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains with the client's own batch norm; answers with the change of everything else."""
        answer = yield from super().client_update(client, model)
        assert answer.trained is not None
        own = client.places_of(self.stays_local)
        answer.diagnostics["kept"] = answer.weight * (answer.trained - model) * own
        return answer

    def releases(self) -> Released:
        raise ScenarioError("batch norm's statistics cannot be clipped; use 'fedavg' and a network without batch norm")

    def stays_local(self, network: nn.Module) -> Collection[str]:
        from torch.nn.modules.batchnorm import _BatchNorm

        norms = [(name, module) for name, module in network.named_modules() if isinstance(module, _BatchNorm)]
        return {f"{name}.{tensor}" for name, module in norms for tensor in module.state_dict()}

    def requirements(self) -> set[Requirement]:
        return {*super().requirements(), "batch_norm"}
