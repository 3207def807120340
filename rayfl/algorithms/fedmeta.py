"""FedMeta: the global model learns to be adapted by one gradient step on a client's support samples.

Chen et al., "Federated Meta-Learning with Fast Convergence and Efficient Communication", 2018, alg. 1, with MAML or
Meta-SGD at the clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import PositiveFloat

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange, Messages, Part, Released
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.sample_request import SampleRequest
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.algorithms.support_query import SupportQuery
from rayfl.local.requests import Gradient, HessianVectorProduct, LossAndGradient
from rayfl.local.state import Declaration

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


class FedMeta(SupportQuery):
    """w <- w - beta mean_u g_u, g_u the gradient of the query loss L_Qu(w_u) after w_u = w - alpha a_u.

    a_u is the gradient of the support loss L_Su at w, H_u its Hessian there, b_u the gradient of L_Qu at w_u:

        MAML: g_u = b_u - alpha H_u b_u, with alpha a number, the round's `local.lr`;
        Meta-SGD: g_u = b_u - H_u (alpha * b_u), with alpha a vector that the server learns too, from `local.lr` in all
        places: alpha <- alpha + beta mean_u(b_u * a_u), which is its exact gradient and takes no Hessian.

    Every client counts once. Losses are over all support and all query samples, in evaluation mode, hence without
    dropout, and never augmented, as the Hessian must be of the gradient's samples. `query_loss`, of the adapted models,
    is reported. With client-level privacy (`phases.N.dp`) g_u, and the rates' gradient, are clipped and noised.

    Attributes:
        variant: Whether alpha is given (`maml`) or learned (`meta_sgd`).
        order: `exact` is the paper's gradient and costs a Hessian-vector product; `first` leaves H_u out, as the
            unofficial code (ddayzzz/federated-meta) does in effect: it writes the adapted parameters in place.
        meta_lr: beta, the server's learning rate. The unofficial code has Adam at the server; the paper's algorithm
            has this plain step.

    With `local.dp`, for `order = "first"` alone, gradients are clipped sample by sample and noised, and the query loss
    is bounded and noised; each is charged for all samples of its set.
    """

    trains: ClassVar[bool] = False
    no_relay: ClassVar[str] = "its meta-gradients are averaged by a server"
    sent_vectors: ClassVar[tuple[str, ...]] = ("gradient", "rates_gradient")

    variant: Literal["maml", "meta_sgd"] = "maml"
    order: Literal["first", "exact"] = "exact"
    meta_lr: PositiveFloat = 0.01

    def round(self, server: ServerState, context: RoundContext) -> Round:
        down, up = self.messages()[0]
        if self.variant == "maml":
            answers = yield Exchange(self.meta_gradient, server.model, up=up)
        else:
            rates = server.get("rates", context.lr)
            sent = server.model, rates.astype(np.float32)
            answers = yield Exchange(self.meta_gradient, *sent, down=down, up=up)
            server.keep("rates", rates - self.meta_lr * answers.mean("rates_gradient"))
        server.apply_update(-self.meta_lr * answers.mean("gradient"))

    def messages(self) -> Messages:
        maml = self.variant == "maml"
        return [(("model",), ("params",))] if maml else [(("model", "params"), ("params", "params"))]

    def meta_gradient(
        self, client: ClientContext, model: torch.Tensor, rates: torch.Tensor | None = None
    ) -> ClientUpdate[Answer]:
        """Answers with g_u, and with the gradient of the rates where they are learned."""
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

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        support, query = self.parts
        return SampleRequest("query", support), SampleRequest("query", query, results=2)

    def local_keys(self) -> frozenset[str] | None:
        return super().local_keys() if self.variant == "maml" else frozenset({"lr"})

    def requirements(self) -> set[Requirement]:
        return {"no_running_statistics", "plain_objective"}

    def server_state(self) -> Declaration:
        return {"rates": "phase"} if self.variant == "meta_sgd" else {}
