"""FedDyn: dynamic regularisation of the clients' objectives aligns their minima with the global one.

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
    """Clients minimise f_i(w) + alpha <w, p_i> + alpha / 2 ||w - w_received||^2, then p_i <- p_i + (w_i - w_received).

    In the paper's notation p_i = -g_i / alpha, initially zero. The server sets w to the mean of the participants' w_i
    plus 1/N times the sum of the p_i over all N clients, which is the paper's -h / alpha. The update of p_i assumes
    only that w_i is near the minimum of this objective, whichever optimizer finds it.

    Clients start from that w (`eval_model = "global"`). By default the plain mean of the round's participants is
    evaluated (`participants`); the authors' example plots `all`.

    `report = ["norms"]` reports `dual_norm`, the norm of the mean of the p_i over all clients, and `client_dual_norm`,
    the norms of the participants' new p_i.

    Example-level DP (`local.dp`): training is noised; the p_i are sums of noised changes and free. Client-level DP
    (`phases.N.dp`): the change is clipped and noised, and the server's sum of the p_i is computed from the noised
    changes; a client's own p_i is not noised.

    Attributes:
        alpha: Weight of the regularisation, above 0.
        penalty: `gradient`: the paper's objective. `decay`: the authors' code, in which alpha ||w||^2 / 2 is weight
            decay of the optimizer and hence not clipped; it is added to the gradient also with AdamW.
        scale_alpha: Whether to use alpha_i = alpha / (n_i / mean n), as in the authors' code; no effect for equal
            sizes.
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
        """Trains on the regularised objective; answers with the change, with weight 1 for every client."""
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
                "scale_alpha = true makes each client's change depend on the mean size of all clients; use "
                "scale_alpha = false"
            )
        return Released({"delta": "model"})

    def client_state(self) -> Declaration:
        return merged([("the algorithm", {"dual": "phase"}), ("local training", super().client_state())])

    def server_state(self) -> Declaration:
        return {"duals": "phase"}
