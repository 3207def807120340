"""Orchestra: clients cluster the representations in their memories, and the server clusters their centroids.

Lubana et al., "Orchestra: Unsupervised Federated Learning via Globally Consistent Clustering", ICML 2022,
alg. 1 and 2.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Asked, Exchange, Released
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.base_phase import EvalModel
from rayfl.errors import ScenarioError
from rayfl.local.queries import Rehearsal
from rayfl.local.state import Declaration, merged
from rayfl.local.steps import batches_of_steps

if TYPE_CHECKING:
    import torch

    from rayfl.config.local import Local
    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate


def sinkhorn(scores: torch.Tensor, most: int = 100, sharpness: float = 25.0) -> torch.Tensor:
    """Spreads samples evenly over clusters.

    Rows and columns of softmax(sharpness * scores) are scaled in turn until every sample weighs 1 / n and every cluster
    1 / k. Every tenth iteration, starting with the first, sums the relative changes of the samples' scales, and stops
    below 0.01.

    From Cuturi, "Sinkhorn Distances: Lightspeed Computation of Optimal Transport", NeurIPS 2013, and the code of Lubana
    et al., "Orchestra: Unsupervised Federated Learning via Globally Consistent Clustering", ICML 2022.

    Args:
        scores: float32 [n, k], the scores of n samples for k clusters.
        most: Maximum number of iterations.
        sharpness: Factor of the scores.

    Returns:
        float32 [n, k], each sample's shares of the clusters, which add up to about 1.
    """
    import torch

    samples, clusters = scores.shape
    shares = (sharpness * scores).softmax(dim=1)
    of_samples = scores.new_full((samples,), 1 / samples)
    of_clusters = scores.new_empty(clusters)
    for iteration in range(most):
        of_clusters = 1 / clusters / (of_samples @ shares)
        scaled = 1 / samples / (shares @ of_clusters)
        change = torch.nansum((of_samples / scaled - 1).abs()) if iteration % 10 == 0 else None
        of_samples = scaled
        if change is not None and change < 0.01:
            break
    return shares * of_samples[:, None] * of_clusters * samples


LOCAL_ITERATIONS, LOCAL_SINKHORN = 5, 10
STEPS, LR, MOMENTUM, DECAY = 500, 0.01, 0.9, 1e-4
"""Of the global clustering by SGD."""


class Orchestra(FedAvg):
    """FedAvg weighted by local batches, after which clients send centroids and the server clusters these.

    For the task and the model `orchestra`. The phase's first round only sets up: clients fill their memories without
    training, and their centroids are clustered; r rounds of training therefore take r + 1 rounds. In every round a
    client clusters its memory: starting from distinct rows of it, it five times assigns rows to their most likely
    cluster by `sinkhorn` and takes the mean of each cluster. The server fits the global centroids, starting from the
    previous ones, to evenly spread assignments of all clients' centroids.

    By default clients keep nothing: the memory is filled anew in every round, for which the client needs as many
    samples.

    Example-level DP (`local.dp`) and client-level DP (`phases.N.dp`) are not supported: centroids are not clipped.

    Attributes:
        local_clusters: Number of centroids that a client sends.
        stateful: Whether clients keep their target network and their memory from round to round.
        temperature: Divisor of the cosines with the global centroids when these are fitted, above 0.
    """

    no_relay: ClassVar[str] = "its server clusters what the whole cohort sends"

    only_eval_models: ClassVar[tuple[EvalModel, ...] | None] = ("global", "average", "ema")

    local_clusters: PositiveInt = 16
    stateful: bool = False
    temperature: PositiveFloat = 0.1

    def asks(self) -> tuple[Asked, ...]:
        return ("cohort", "cohort", "host")  # so that planning does not run the fit, which takes long

    def round(self, server: ServerState, context: RoundContext) -> Round:
        if context.round_in_phase == 1:
            yield Exchange(self.set_up, server.model, up=())
        else:
            answers = yield Exchange(self.client_update, server.model, each=self.aggregation.each)
            self.apply(server, self.aggregated(server, answers))
        before = _centroids(server)
        sent = yield Exchange(
            self.send_centroids,
            down=(),
            up=(self.local_clusters * before.shape[1],),
            each=True,
            with_first_model=False,
        )
        rows = np.concatenate(sent.one_by_one("centroids").vectors)
        fit = partial(self.fit_centroids, width=before.shape[1])
        fitted = yield Exchange(fit, before.flatten(), rows, at="host", with_first_model=False)
        before[...] = fitted.mean("centroids").reshape(before.shape)

    def set_up(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Fills the client's memory; sends nothing."""
        self._forget(client)
        objective = yield Rehearsal(model)
        return Answer(diagnostics={"objective": objective})

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Trains from the global model, with the client's own target if it keeps one; answers with the change."""
        self._forget(client)
        start = model
        if "target" in client.state:
            start = model.clone()
            start[client.places_of_copies()] = client.state["target"]
        trained = yield from self.train(client, start)
        if self.stateful:
            client.state["target"] = trained[client.places_of_copies()]
        return Answer(self.weight(client), delta=trained - model, trained=trained)

    def weight(self, client: ClientContext) -> float:
        """Returns the number of local batches, as in the authors' code; 1 with weighting = 'uniform'."""
        return client.steps if self.weighting == "samples" else 1.0

    def _forget(self, client: ClientContext) -> None:
        if not self.stateful:
            client.state.pop("memory", None)

    def send_centroids(self, client: ClientContext) -> Answer:
        """Clusters the client's memory."""
        import torch
        from torch.nn.functional import normalize

        rows = client.state["memory"]
        rng = client.streams.numpy("clusters")
        centroids = rows[torch.from_numpy(rng.choice(len(rows), self.local_clusters, replace=False))].clone()
        for _ in range(LOCAL_ITERATIONS):
            nearest = sinkhorn(rows @ centroids.T, LOCAL_SINKHORN).argmax(dim=1)
            for cluster in range(self.local_clusters):
                members = rows[nearest == cluster]
                if not len(members):
                    members = rows[rng.integers(len(rows))].unsqueeze(0)
                centroids[cluster] = normalize(members.mean(dim=0), dim=0)
        return Answer(centroids=centroids.flatten())

    def fit_centroids(self, client: ClientContext, before: torch.Tensor, sent: torch.Tensor, width: int) -> Answer:
        """Fits the global centroids to the assignments of all local ones; every cluster has the same weight."""
        import torch
        from torch.nn.functional import cosine_similarity, normalize

        rows = sent.reshape(-1, width)
        directions = normalize(rows)
        centroids = before.reshape(-1, width).clone().requires_grad_()
        optimizer = torch.optim.SGD([centroids], lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
        for _ in range(STEPS):
            with torch.no_grad():
                wanted = sinkhorn(rows @ centroids.T)
            optimizer.zero_grad()
            likely = (directions @ centroids.T / self.temperature).softmax(dim=1)
            torch.autograd.backward(-cosine_similarity(wanted, likely).mean())
            optimizer.step()
            with torch.no_grad():
                centroids.copy_(normalize(centroids))
        return Answer(centroids=centroids.detach().flatten())

    def check_training(self, task: Any, local: Local, sizes: np.ndarray) -> None:
        memory = getattr(task, "memory", None)
        if task.name != "orchestra" or memory is None:
            raise ScenarioError(f"algorithm 'orchestra' clusters the memory of task 'orchestra', not of '{task.name}'")
        if memory < self.local_clusters:
            raise ScenarioError(
                f"algorithm.local_clusters: {self.local_clusters} clusters start from distinct rows of a memory of "
                f"{memory}; use a larger task.memory or fewer clusters"
            )
        seen = np.array([sum(map(sum, batches_of_steps(local, int(size)))) for size in sizes])
        if not self.stateful and seen.min() < memory:
            raise ScenarioError(
                f"task.memory: client {int(seen.argmin())} trains on {int(seen.min())} samples in a round, too few to "
                f"fill a memory of {memory}; use a smaller one, more epochs, or algorithm.stateful = true"
            )

    def no_sample_dp(self) -> str:
        return "its clients send centroids of the representations of single samples"

    def releases(self) -> Released:
        raise ScenarioError("the clients' centroids are not clipped; use 'fedavg' with task 'simsiam' or 'moco'")

    def client_state(self) -> Declaration:
        own: Declaration = {"memory": "phase", "target": "phase"} if self.stateful else {"memory": "round"}
        return merged([("the algorithm", own), ("local training", super().client_state())])


def _centroids(server: ServerState) -> np.ndarray:
    """[clusters, width] float32, a view into the global model."""
    (name,) = (slot.name for slot in server.layout if slot.name.endswith("centroids"))
    return server.tensor(name)
