"""CoPreFL: federated pre-training whose server steps towards a model that serves all clients well, and evenly.

"Rethinking the Starting Point: Collaborative Pre-Training for Federated Downstream Tasks", algs. 1 (scenario I, data
only at clients) and 2 (scenario II, the server holds data too).
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, model_validator

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.diagnostics import norm
from rayfl.algorithms.exchange import Answer, Answers, Asked, Exchange, Messages, Released
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.sample_request import SampleRequest
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.algorithms.support_query import SupportQuery
from rayfl.config.base_phase import EvalModel
from rayfl.config.section import check_idle
from rayfl.errors import ScenarioError
from rayfl.local.data_view import DataView
from rayfl.local.requests import LossAndGradient
from rayfl.local.state import Declaration

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


META = "meta"


class CoPreFL(SupportQuery, LocalTrainingAlgorithm):
    """w' = mean of the clients' models, trained on support; w = w' - meta_lr * gradient of L_meta at w'.

    L_meta = gamma sum_j L_j + (1 - gamma) var_j(L_j), where L_j is the mean loss of w' on the j-th query set, and the
    variance is over the m query sets of the round. How w' depends on the model of the round before is left out, as in
    the paper, so that with g_j, the gradient of L_j at w', the gradient is

        sum_j (gamma + 2 (1 - gamma) / m (L_j - mean L)) g_j.

    The server needs no single answer for it: with a number c that is close to the mean loss (last round's) the sums of
    g_j, L_j and (L_j - c) g_j give the same. The protocol's traffic is that of single answers, L_j and g_j, four model
    sizes for a participant with all else. `up_bytes_more_if_summed` reports how many bytes more the cohort would send
    if the server were to see sums alone, five model sizes. Buffers are averaged with the models; `transforms` apply to
    the models' changes.

    `report = ["meta"]` compares the two steps of a round: `meta_norm` is the length of the server's, and `meta_ratio`
    that length over the length of the clients' mean change, which is FedAvg's step on support. `meta_loss_norm` and
    `meta_variance_norm` are the lengths of the gradients of L_meta's two terms before gamma weighs them, so both weigh
    the same where gamma / (1 - gamma) is the second over the first.

    It has no client-level privacy (`phases.N.dp`): losses, gradients and their products differ in scale, and one bound
    on the norm does not fit them.

    Attributes:
        gamma: The balance between the clients' losses and their variance. gamma = 0 only evens the losses out.
        meta_lr: The server's rate (zeta). It multiplies a sum over the query sets; 0 leaves the clients' mean.
        total: Whether the first term of L_meta is the `sum` of the losses, as in the paper, or their `mean`. gamma = 1
            with the mean is support training plus the mean query gradient.
        queries: Where query sets come from. `clients`: a part of each participant's samples, the others being its
            support (scenario I). `server`: the server's samples, split anew every round into as many equal parts as
            there are participants, who train on all of theirs (scenario II).
        weighting: Of the models' mean: `samples` of support, as in the paper, or `uniform`.

    With `local.dp` training on support is noised, and so are a query's gradient, clipped sample by sample, and its
    loss, bounded by `max_loss`; each is charged. A split that is drawn once composes in parallel.
    """

    exchanges: ClassVar[int] = 2
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

    def asks(self) -> tuple[Asked, ...]:
        return ("cohort", "server" if self.queries == "server" else "cohort")

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

    def messages(self) -> Messages:
        support: Messages = [(("model",), ("model",))]
        return support if self.queries == "server" else [*support, (("model",), ("params", 1))]

    def support_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains on the client's support; answers with the weighted change."""
        support = client.data if self.queries == "server" else self.support_and_query(client)[0]
        trained = yield from self.train(client, model, data=support)
        return Answer(len(support) if self.weighting == "samples" else 1.0, delta=trained - model)

    def query_update(self, client: ClientContext, model: torch.Tensor, centre: torch.Tensor) -> ClientUpdate[Answer]:
        """Answers with the loss of the clients' mean on the client's query set, and its gradient."""
        views = [self.support_and_query(client)[1]]
        return (yield from self._queries(client, self.with_buffers(client, model), centre, views))

    def server_queries(
        self, client: ClientContext, model: torch.Tensor, centre: torch.Tensor, parts: int
    ) -> ClientUpdate[Answer]:
        """The same of all query sets that the server's samples are split into, summed."""
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
            found = {"loss": loss, "above": above, "squared": above * above, "gradient": gradient}
            found["above_gradient"] = above * gradient
            sums = {name: sums[name] + value if sums else value for name, value in found.items()}
        return Answer(sums=sums | {"query_sets": centre.new_full((1,), len(views))})

    def meta_update(
        self, server: ServerState, answers: Answers, centre: float, change: np.ndarray | None = None
    ) -> None:
        """Steps the clients' mean by the gradient of L_meta.

        Args:
            server: The server's working copy, with the clients' mean as its model.
            answers: The sums over the query sets.
            centre: c.
            change: float64 [num_params], the clients' mean change, where the step is to be compared with it.
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
            "clients answer with losses, gradients, their products and models, which one bound does not fit; use "
            "'fedavg'"
        )

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        if self.queries == "server":
            return (SampleRequest(),)
        support, query = self.parts
        return SampleRequest(part=support), SampleRequest("query", query, results=2, exchange=1)

    def training_sizes(self, sizes: np.ndarray) -> np.ndarray:
        return sizes if self.queries == "server" else self.support_sizes(sizes)

    def check_clients(self, sizes: np.ndarray) -> None:
        if self.queries == "clients":
            super().check_clients(sizes)

    def check_cohort(self, smallest: int, largest: int) -> None:
        if largest == 1 and self.gamma < 1:
            raise ScenarioError("gamma: the losses of a single participant have no variance; use a larger cohort")

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
