"""FedDyn: every client's objective is regularised so that the clients' minima agree with the global one.

Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021, alg. 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange, Released
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.base_phase import EvalModel
from rayfl.errors import ScenarioError
from rayfl.local.requests import Affine
from rayfl.local.state import Declaration, merged

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class FedDyn(LocalTrainingAlgorithm):
    """min f_i(w) + alpha <w, p_i> + alpha / 2 ||w - w_received||^2; then p_i <- p_i + (w_i - w_received).

    p_i = -g_i / alpha in the paper's letters, zero at the start. The server: w <- mean of the participants' w_i plus
    1/N times the sum of p_i over all N clients, which is the paper's -h / alpha. `report = ["norms"]` reports
    `dual_norm`, of the mean of the p_i over all clients, and `client_dual_norm`, of the participants' new p_i.

    p_i only assumes that w_i is near the minimum of this objective, by whatever optimizer.

    Clients start from that w (`eval_model = "global"`); what is evaluated is by default the plain mean of the round's
    `participants`; the authors' example plots `all`.

    With client-level privacy (`phases.N.dp`) the change is clipped and noised, and the server's sum of the p_i is
    made of that; a client's p_i is what it computed.

    Attributes:
        alpha: Weight of the regularisation.
        penalty: `gradient` is the paper's objective; `decay` is the authors' code, where alpha ||w||^2 / 2 is weight
            decay of the optimizer, which clipping does not see; added to the gradient also with AdamW.
        scale_alpha: alpha_i = alpha / (n_i / mean n), as in the authors' code; equal sizes make no difference.

    With `local.dp` training is noised; the p_i, which are sums of noised changes, are free.
    """

    no_relay: ClassVar[str] = "its dual vectors need a server"
    default_eval_model: ClassVar[EvalModel] = "participants"
    reports: ClassVar[tuple[str, ...]] = ("norms",)

    alpha: PositiveFloat = 0.01
    penalty: Literal["gradient", "decay"] = "gradient"
    scale_alpha: bool = False

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        delta = answers.mean("delta")
        duals = server.get("duals", 0.0) + answers.count * delta[: server.num_params]
        server.keep("duals", duals)
        if "norms" in context.reports:
            server.report(dual_norm=np.sqrt(np.square(duals / server.num_clients).sum()))
        server.apply_update(delta[: server.num_params] + duals / server.num_clients, delta[server.num_params :])

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains on the regularised objective; answers with the change, every client of weight 1."""
        params = model[: client.num_params]
        dual = client.state.get("dual", params.new_zeros(params.shape))
        alpha = self.alpha / client.relative_size if self.scale_alpha else self.alpha
        decay = alpha if self.penalty == "decay" else 0.0
        regularizer = Affine(linear=alpha * (dual - params), quadratic=alpha - decay)
        trained = yield from self.train(client, model, gradient=(regularizer,), weight_decay=decay)
        delta = trained - model
        client.state["dual"] = new = dual + delta[: client.num_params]
        if "norms" in client.reports:
            client.report(client_dual_norm=float(new.double().square().sum().sqrt()))
        return Answer(delta=delta)

    def releases(self) -> Released:
        if self.scale_alpha:
            raise ScenarioError(
                "scale_alpha = true makes every client's change depend on the mean size of all; use scale_alpha = false"
            )
        return Released({"delta": "model"})

    def client_state(self) -> Declaration:
        return merged([("the algorithm", {"dual": "phase"}), ("local training", super().client_state())])

    def server_state(self) -> Declaration:
        return {"duals": "phase"}
