"""FedMeta: trains a global model that adapts to a client by one gradient step on its support samples.

Chen et al., "Federated Meta-Learning with Fast Convergence and Efficient Communication", 2018, alg. 1, with MAML or
Meta-SGD at the clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange, Part, Released
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.algorithms.support_query import SupportQuery
from rayfl.local.queries import Gradient, HessianVectorProduct, LossAndGradient
from rayfl.local.state import Declaration

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class FedMeta(SupportQuery):
    """w <- w - beta mean_u g_u, g_u the gradient of the query loss L_Qu(w_u) after w_u = w - alpha a_u.

    a_u is the gradient of the support loss L_Su at w, H_u its Hessian there, and b_u the gradient of L_Qu at w_u:

        MAML: g_u = b_u - alpha H_u b_u, with alpha a number, the round's `local.lr`;
        Meta-SGD: g_u = b_u - H_u (alpha * b_u), with alpha a vector that the server learns as well, initially
        `local.lr` everywhere: alpha <- alpha + beta mean_u(b_u * a_u), which is its exact gradient and needs no
        Hessian.

    Every client counts once. Losses cover all support and all query samples, in evaluation mode (no dropout) and
    without augmentation, since the Hessian must be that of the gradient's samples. `query_loss`, the loss of the
    adapted models, is reported.

    Example-level DP (`local.dp`), only with `order = "first"`: gradients are clipped sample by sample and noised, the
    query loss is bounded and noised, and each is charged for all samples of its set. Client-level DP (`phases.N.dp`):
    g_u, and the gradient of the rates, are clipped and noised.

    Attributes:
        variant: Whether alpha is fixed (`maml`) or learned (`meta_sgd`).
        order: `exact`: the paper's gradient, which costs a Hessian-vector product. `first`: without H_u, as the
            unofficial code (ddayzzz/federated-meta) computes in effect, because it writes the adapted parameters in
            place.
        meta_lr: beta, the server's learning rate, above 0. The unofficial code uses Adam on the server; the paper's
            algorithm uses this plain step.
    """

    trains: ClassVar[bool] = False
    no_relay: ClassVar[str] = "its meta-gradients are averaged by a server"

    variant: Literal["maml", "meta_sgd"] = "maml"
    order: Literal["first", "exact"] = "exact"
    meta_lr: PositiveFloat = 0.01

    def round(self, server: ServerState, context: RoundContext) -> Round:
        if self.variant == "maml":
            answers = yield Exchange(self.meta_gradient, server.model, up=("params",))
        else:
            rates = server.get("rates", context.lr)
            sent = server.model, rates.astype(np.float32)
            answers = yield Exchange(self.meta_gradient, *sent, down=("model", "params"), up=("params", "params"))
            server.keep("rates", rates - self.meta_lr * answers.mean("rates_gradient"))
        server.apply_update(-self.meta_lr * answers.mean("gradient"))

    def meta_gradient(
        self, client: ClientContext, model: torch.Tensor, rates: torch.Tensor | None = None
    ) -> ClientUpdate[Answer]:
        """Answers with g_u and, if the rates are learned, with their gradient."""
        support, query = self.support_and_query(client)
        alpha = client.lr if rates is None else rates
        inner = yield Gradient(model, support)
        adapted = model.clone()
        adapted[: client.num_params] -= alpha * inner
        query_loss, outer = yield LossAndGradient(adapted, query)
        client.report(query_loss=float(query_loss))
        gradient = outer
        if self.order == "exact":
            gradient = outer - (yield HessianVectorProduct(model, support, vector=alpha * outer))
        if rates is None:
            return Answer(gradient=gradient)
        return Answer(gradient=gradient, rates_gradient=-outer * inner)

    def no_sample_dp(self) -> str:
        if self.order == "exact":
            return "its Hessian-vector products are not clipped sample by sample; use order = 'first'"
        return ""

    def releases(self) -> Released:
        gradient: dict[str, Part] = {"gradient": "params"}
        return Released(gradient if self.variant == "maml" else {**gradient, "rates_gradient": "params"})

    def local_keys(self) -> frozenset[str] | None:
        return super().local_keys() if self.variant == "maml" else frozenset({"lr"})

    def requirements(self) -> set[Requirement]:
        return {"no_running_statistics", "plain_objective"}

    def server_state(self) -> Declaration:
        return {"rates": "phase"} if self.variant == "meta_sgd" else {}
