"""Tasks without labels: SimSiam, MoCo, and Orchestra's local objective; their networks have heads of their own."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from rayfl.errors import RayflError, ScenarioError
from rayfl.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn

    from rayfl.config.local import Local
    from rayfl.local.batches import EvaluationBatch, TrainingBatch
    from rayfl.local.context import ClientContext
    from rayfl.local.requests import Reduction
    from rayfl.local.state import Declaration
    from rayfl.models.heads import FollowedHead, OrchestraHead, SiameseHead


class SelfSupervised(Task):
    """A task that compares views of a sample with each other; labels are not read.

    Attributes:
        model: The registered model that has the head.
        compared: What is compared, for messages.
    """

    default_metrics: ClassVar[tuple[str, ...]] = ("spread",)
    views: ClassVar[int] = 2
    per_sample: ClassVar[bool] = False
    has_loss: ClassVar[bool] = False
    model: ClassVar[str]
    compared: ClassVar[str]

    def num_outputs(self, labels: np.ndarray, num_classes: int | None) -> int:
        return 1

    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        return [[len(targets), -1]]

    @abstractmethod
    def head_of(self, network: nn.Module) -> nn.Module | None:
        """Returns the head module that the task needs; None if the network has none."""

    def check_network(self, network: nn.Module) -> None:
        if self.head_of(network) is None:
            raise ScenarioError(
                f"task '{self.name}' compares {self.compared}, for which {type(network).__name__} has no modules; use "
                f'model = {{ name = "{self.model}", network = ... }}'
            )

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        raise RayflError(f"task '{self.name}' has no per-sample loss: it compares {self.compared} within a batch")


class SimSiam(SelfSupervised):
    """-(cos(p1, z2) + cos(p2, z1)) / 2, without gradients through the projections z; labels are not read.

    For the model `siamese`. The loss of test samples is that of two augmented views, the same in every evaluation.

    From Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, algorithm 1.
    """

    evaluation_views: ClassVar[int] = 2
    per_sample: ClassVar[bool] = True
    has_loss: ClassVar[bool] = True
    model: ClassVar[str] = "siamese"
    compared: ClassVar[str] = "projections with predictions"

    name: str = "simsiam"

    def output_shapes(self, targets: torch.Tensor, num_outputs: int) -> list[list[int]]:
        return [[len(targets), 2, -1]]

    def head_of(self, network: nn.Module) -> SiameseHead | None:
        from rayfl.models.heads import SiameseHead

        return next((module for module in network.modules() if isinstance(module, SiameseHead)), None)

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        import torch

        both = [batch.module(view) for view in batch.views]
        return self.loss(torch.cat(both, dim=1), batch.y)

    def evaluated(self, batch: EvaluationBatch) -> torch.Tensor:
        """[n, 4, width]: z1, p1, z2, p2 of two views."""
        import torch

        return torch.cat([batch.module(view) for view in batch.views], dim=1)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor, reduction: Reduction = "mean") -> torch.Tensor:
        from torch.nn.functional import cosine_similarity

        z1, p1, z2, p2 = outputs.unbind(1)
        losses = -(cosine_similarity(p1, z2.detach()) + cosine_similarity(p2, z1.detach())) / 2
        if reduction == "none":
            return losses
        return losses.mean() if reduction == "mean" else losses.sum()


class MoCo(SelfSupervised):
    """Cross-entropy of cos(query, key) / temperature over the key of the same sample and a queue of earlier keys.

    For the model `momentum_contrast`, whose follower network computes the keys. Before every step its parameters become
    momentum * own + (1 - momentum) * trained, as in the authors' code; its batch norm has its own statistics. After the
    loss, the batch's keys replace the oldest in the queue. The queue starts as random directions; a client keeps it and
    never sends it. Single samples have no loss: test samples are evaluated only by metrics.

    From He et al., "Momentum Contrast for Unsupervised Visual Representation Learning", CVPR 2020, algorithm 1, with
    the temperature of MoCo v2.

    Attributes:
        queue: Number of keys; a multiple of the batch size.
        momentum: Share of its own parameters that the key network keeps in every step, from 0 to 1.
        temperature: Divisor of the cosines, above 0.
    """

    model: ClassVar[str] = "momentum_contrast"
    compared: ClassVar[str] = "queries with a queue of keys"

    name: str = "moco"
    queue: PositiveInt = 65536
    momentum: Annotated[float, Field(ge=0, le=1)] = 0.999
    temperature: PositiveFloat = 0.2

    def head_of(self, network: nn.Module) -> FollowedHead | None:
        from rayfl.models.heads import FollowedHead

        return next((module for module in network.modules() if isinstance(module, FollowedHead)), None)

    def check_local(self, local: Local, sizes: np.ndarray) -> None:
        _check_follows_steps(self.name, local)
        if not isinstance(local.batch_size, int) or self.queue % local.batch_size:
            raise ScenarioError(
                f"task.queue: {self.queue} keys are not a multiple of local.batch_size = {local.batch_size!r}; use one "
                "that is"
            )
        if not local.drop_last:
            raise ScenarioError(f"task '{self.name}' fills its queue with whole batches; set local.drop_last = true")
        if sizes.min() < local.batch_size:
            raise ScenarioError(
                f"task '{self.name}' fills its queue with whole batches, but client {int(sizes.argmin())} has "
                f"{int(sizes.min())} samples, fewer than local.batch_size = {local.batch_size}; use a smaller one"
            )

    def client_state(self) -> Declaration:
        return {"queue": "phase", "oldest": "phase"}

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        import torch
        from torch.nn.functional import cross_entropy, normalize

        from rayfl.models.heads import follow

        head = self.head_of(batch.module)
        assert head is not None
        queries = normalize(batch.outputs)
        with torch.no_grad():
            follow(batch.module, self.momentum)
            keys = normalize(head.follower(batch.views[1]))
        queue = self._queue(batch.client, keys)
        of_own = (queries * keys).sum(dim=1, keepdim=True)
        logits = torch.cat([of_own, queries @ queue.T], dim=1) / self.temperature
        loss = cross_entropy(logits, torch.zeros(len(keys), dtype=torch.long, device=keys.device))
        oldest = int(batch.client.state["oldest"])
        with torch.no_grad():
            queue = queue.clone()  # this batch's backward pass still needs the old queue
            queue[oldest : oldest + len(keys)] = keys
        batch.client.state["queue"] = queue
        batch.client.state["oldest"] = torch.tensor((oldest + len(keys)) % self.queue)
        return loss

    def _queue(self, client: ClientContext, keys: torch.Tensor) -> torch.Tensor:
        import torch
        from torch.nn.functional import normalize

        if "queue" not in client.state:
            drawn = client.streams.numpy("queue").standard_normal((self.queue, keys.shape[1]), dtype=np.float32)
            client.state["queue"] = normalize(torch.from_numpy(drawn)).to(keys.device)
            client.state["oldest"] = torch.tensor(0)
        return client.state["queue"]


class Orchestra(SelfSupervised):
    """Cross-entropy of one view's clusters, given those of another under the target network, and of four rotations.

    For the model `orchestra` and the algorithm `orchestra`, which updates the clusters. The three views are x1, x2 and
    one that is rotated by a random number of quarter turns; only x1 is given to the target network. Before every step
    the target's parameters become momentum * own + (1 - momentum) * trained. The target's projections of x1 enter the
    client's memory and replace its oldest. Single samples have no loss: test samples are evaluated only by metrics.

    From Lubana et al., "Orchestra: Unsupervised Federated Learning via Globally Consistent Clustering", ICML 2022, as
    in its code: the network also sees x1, only to update its batch norm statistics.

    Attributes:
        memory: Number of projections that a client keeps and clusters.
        momentum: Share of its own parameters that the target keeps in every step, from 0 to 1.
        temperature: Divisor of the cosines with centroids, above 0.
    """

    views: ClassVar[int] = 3
    model: ClassVar[str] = "orchestra"
    compared: ClassVar[str] = "projections with centroids"

    name: str = "orchestra"
    memory: PositiveInt = 128
    momentum: Annotated[float, Field(ge=0, le=1)] = 0.996
    temperature: PositiveFloat = 0.1

    def head_of(self, network: nn.Module) -> OrchestraHead | None:
        from rayfl.models.heads import OrchestraHead

        return next((module for module in network.modules() if isinstance(module, OrchestraHead)), None)

    def check_local(self, local: Local, sizes: np.ndarray) -> None:
        _check_follows_steps(self.name, local)

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        import torch
        from torch.nn.functional import cross_entropy, normalize

        from rayfl.data.augmentation.geometric import quarter_turned
        from rayfl.models.heads import follow

        first, second, turned = batch.views
        head = self.head_of(batch.module)
        assert head is not None
        with torch.no_grad():
            batch.module(first)
        directions = normalize(batch.module(second))
        with torch.no_grad():
            follow(batch.module, self.momentum)
            targets = normalize(head.follower(first))
            clusters = (targets @ head.centroids.T / self.temperature).softmax(dim=1)
        likelihoods = (directions @ head.centroids.T / self.temperature).log_softmax(dim=1)
        turns = torch.randint(4, (len(turned),))
        rotated = quarter_turned(turned.permute(0, 2, 3, 1), turns.to(turned.device)).permute(0, 3, 1, 2)
        predicted = head.rotation(batch.module(rotated))
        self._remember(batch.client, targets)
        return cross_entropy(predicted, turns.to(predicted.device)) - (clusters * likelihoods).sum(dim=1).mean()

    def symbolic_state(self, network: nn.Module) -> Mapping[str, torch.Tensor]:
        head = self.head_of(network)
        assert head is not None
        return {"memory": head.centroids.new_ones(self.memory, head.centroids.shape[1])}

    def _remember(self, client: ClientContext, targets: torch.Tensor) -> None:
        import torch

        before = [client.state["memory"]] if "memory" in client.state else []
        client.state["memory"] = torch.cat([targets, *before])[: self.memory]


def _check_follows_steps(name: str, local: Local) -> None:
    if local.accumulate > 1:
        raise ScenarioError(
            f"local.accumulate: task '{name}' moves its follower with every batch, and a step has {local.accumulate}; "
            "use a larger batch_size instead"
        )
