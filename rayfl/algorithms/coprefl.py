"""CoPreFL: federated pre-training with a server step towards a model that serves all clients well and evenly.

Chu et al., "Rethinking the Starting Point: Collaborative Pre-Training for Federated Downstream Tasks", AAAI 2025,
algs. 1 (scenario I, only clients have data) and 2 (scenario II, the server has data too).
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, model_validator

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Answers, Exchange, Released
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.round_results import norm
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.algorithms.support_query import SupportQuery
from rayfl.config.base_phase import EvalModel
from rayfl.config.section import check_idle
from rayfl.errors import ScenarioError
from rayfl.local.queries import DataView, LossAndGradient
from rayfl.local.state import Declaration

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


META = "meta"


class CoPreFL(SupportQuery, LocalTrainingAlgorithm):
    """Averages models trained on support sets, then takes a meta step on the query losses and their variance.

    With w' the mean of the clients' models, w = w' - meta_lr * gradient of L_meta at w', where L_meta = gamma sum_j L_j
    + (1 - gamma) var_j(L_j). L_j is the mean loss of w' on the j-th query set; the variance is over the m query sets of
    the round. As in the paper, the dependence of w' on the previous round's model is ignored. With g_j the gradient of
    L_j at w', the gradient is

        sum_j (gamma + 2 (1 - gamma) / m (L_j - mean L)) g_j.

    The server can compute it without single answers: for any number c close to the mean loss (the mean loss of the
    previous round), the sums of g_j, L_j and (L_j - c) g_j are enough. The traffic counted is nevertheless that of the
    paper's single answers L_j and g_j: four model sizes per participant, everything included. `up_bytes_more_if_summed`
    reports how many more bytes the cohort would send if the server saw only sums (five model sizes). Buffers are
    averaged with the models; `transforms` apply to the changes of the models.

    `report = ["meta"]` compares the two steps of a round. `meta_norm` is the norm of the server's step; `meta_ratio`
    divides it by the norm of the clients' mean change, which is FedAvg's step on support. `meta_loss_norm` and
    `meta_variance_norm` are the gradient norms of the two terms of L_meta before gamma weights them; the terms
    contribute equally where gamma / (1 - gamma) is the second norm over the first.

    Example-level DP (`local.dp`): training on support is noised; a query's gradient, clipped sample by sample, and its
    loss, bounded by `max_loss`, are noised too, and each is charged. A split that is drawn once composes in parallel.
    Client-level DP (`phases.N.dp`) is not supported: losses, gradients and their products have different scales, and no
    single norm bound fits them.

    Attributes:
        gamma: Balance between the clients' losses and their variance, from 0 to 1. gamma = 0 only evens out the losses.
        meta_lr: zeta, the server's learning rate, at least 0. It multiplies a sum over the query sets; 0 keeps the mean
            of the clients' models.
        total: Whether the first term of L_meta is the `sum` of the losses, as in the paper, or their `mean`. gamma = 1
            with `mean` is support training plus the mean query gradient.
        queries: Where query sets come from. `clients`: a part of each participant's samples, while the rest is its
            support (scenario I). `server`: the server's samples, split anew every round into as many equal parts as
            there are participants, who train on all of their samples (scenario II).
        weighting: Weights of the mean of the models: `samples` in support, as in the paper, or `uniform`.
    """

    sent_vectors: ClassVar[tuple[str, ...]] = ("delta",)
    only_eval_models: ClassVar[tuple[EvalModel, ...] | None] = ("global", "ema")
    no_relay: ClassVar[str] = "its server's step needs the query losses of a cohort"
    reports: ClassVar[tuple[str, ...]] = (META,)

    gamma: Annotated[float, Field(ge=0, le=1)] = 0.5
    meta_lr: NonNegativeFloat = 0.01
    total: Literal["sum", "mean"] = "sum"
    queries: Literal["clients", "server"] = "clients"
    weighting: Literal["samples", "uniform"] = "samples"

    @model_validator(mode="after")
    def _no_idle_options(self) -> CoPreFL:
        at_server = self.queries == "server"
        check_idle(self, {"query_share": at_server, "split": at_server}, "with queries = 'server'")
        if at_server and self.buffers != "average":
            raise ValueError(
                f"buffers = '{self.buffers}' needs queries of clients, which have buffers; the server has none"
            )
        check_idle(self, {"total": self.gamma == 0}, "with gamma = 0, which leaves the first term out")
        return self

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.support_update, server.model)
        mean = answers.mean("delta")
        server.apply_update(mean[: server.num_params], mean[server.num_params :])
        centre = server.state.get("query_loss", np.zeros(1)).astype(np.float32)
        if self.queries == "server":
            queries = partial(self.server_queries, parts=len(context.cohort))
            answers = yield Exchange(queries, server.model, centre, at="server")
        else:
            answers = yield Exchange(
                self.query_update,
                server.model,
                centre,
                up=("params", 1),
                up_if_summed=("params", "params", 1),
                with_first_model=False,
            )
        change = mean[: server.num_params] if META in context.reports else None
        self.meta_update(server, answers, float(centre[0]), change)

    def support_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains on the client's support set; answers with the weighted change."""
        support = client.data if self.queries == "server" else self.support_and_query(client)[0]
        trained = yield from self.train(client, model, data=support)
        return Answer(len(support) if self.weighting == "samples" else 1.0, delta=trained - model)

    def query_update(self, client: ClientContext, model: torch.Tensor, centre: torch.Tensor) -> ClientUpdate[Answer]:
        """Answers with the loss and gradient of the clients' mean model on the client's query set."""
        views = [self.support_and_query(client)[1]]
        return (yield from self._queries(client, self.with_buffers(client, model), centre, views))

    def server_queries(
        self, client: ClientContext, model: torch.Tensor, centre: torch.Tensor, parts: int
    ) -> ClientUpdate[Answer]:
        """Does the same on all query sets that the server's samples are split into, and sums the results."""
        order = client.streams.numpy("query sets").permutation(client.num_samples)
        views = [DataView(np.sort(places), augment=False) for places in np.array_split(order, parts)]
        return (yield from self._queries(client, model, centre, views))

    def _queries(
        self, client: ClientContext, model: torch.Tensor, centre: torch.Tensor, views: list[DataView]
    ) -> ClientUpdate[Answer]:
        sums: dict[str, torch.Tensor] = {}
        for view in views:
            loss, gradient = yield LossAndGradient(model, data=view)
            above = loss - centre
            terms = {"loss": loss, "above": above, "squared": above * above, "gradient": gradient}
            terms["above_gradient"] = above * gradient
            sums = {name: sums[name] + value if sums else value for name, value in terms.items()}
        return Answer(sums=sums | {"query_sets": centre.new_full((1,), len(views))})

    def meta_update(
        self, server: ServerState, answers: Answers, centre: float, change: np.ndarray | None = None
    ) -> None:
        """Steps the clients' mean model against the gradient of L_meta.

        Args:
            server: The server's working copy, whose model is the clients' mean.
            answers: The sums over the query sets.
            centre: c.
            change: float64 [num_params], the clients' mean change, to report the step relative to it; None reports
                nothing.
        """
        sums, m = answers.sums, float(answers.sums["query_sets"][0])
        above = float(sums["above"][0]) / m
        variance_gradient = 2 / m * (sums["above_gradient"] - above * sums["gradient"])
        first_term = sums["gradient"] / (m if self.total == "mean" else 1)
        step = -self.meta_lr * (self.gamma * first_term + (1 - self.gamma) * variance_gradient)
        server.apply_update(step)
        mean = float(sums["loss"][0]) / m
        server.keep("query_loss", np.array([mean]))
        server.report(query_loss=mean, query_loss_variance=float(sums["squared"][0]) / m - above**2)
        if change is not None:
            length, of_change = norm(step), norm(change)
            server.report(
                meta_norm=length,
                meta_ratio=length / of_change if of_change else math.nan,
                meta_loss_norm=norm(first_term),
                meta_variance_norm=norm(variance_gradient),
            )

    def releases(self) -> Released:
        raise ScenarioError(
            "clients answer with losses, gradients, their products and models, and no single norm bound fits them; "
            "use 'fedavg'"
        )

    def training_sizes(self, sizes: np.ndarray) -> np.ndarray:
        return sizes if self.queries == "server" else self.support_sizes(sizes)

    def check_clients(self, sizes: np.ndarray) -> None:
        if self.queries == "clients":
            super().check_clients(sizes)

    def check_cohort(self, smallest: int, largest: int) -> None:
        if largest == 1 and self.gamma < 1:
            raise ScenarioError("gamma: the loss of a single participant has no variance; use a larger cohort")

    def check_server(self, samples: int, largest_cohort: int) -> None:
        if self.queries == "server" and samples < largest_cohort:
            raise ScenarioError(
                f"the server holds {samples} samples, too few to split among {largest_cohort} participants; use a "
                "larger data.server_share or a smaller cohort"
            )

    def requirements(self) -> set[Requirement]:
        return super().requirements() | {"plain_objective"}

    def server_state(self) -> Declaration:
        return {"query_loss": "phase"}
