"""Orchestra's local objective: both views of an image lie in the same global cluster, and its rotation is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, PositiveFloat, PositiveInt

from rayfl.tasks.self_supervised import SelfSupervised

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rayfl.local.context import ClientContext
    from rayfl.local.training_batch import TrainingBatch
    from rayfl.models.orchestra import OrchestraHead


class Orchestra(SelfSupervised):
    """Cross-entropy of the clusters of one view, given those of another under the target, and of four rotations.

    For the model `orchestra` and the algorithm `orchestra`, which moves the clusters. The three views are x1, x2 and
    one that is rotated by a random number of quarter turns; only x1 enters the target. Before every step the target's
    parameters become momentum * own + (1 - momentum) * trained. What the target says of x1 enters the client's memory,
    the oldest of which goes. There is no loss of single samples: test samples are scored by metrics alone.

    From Lubana et al., "Orchestra: Unsupervised Federated Learning via Globally Consistent Clustering", ICML 2022, in
    the form of its code: the network also sees x1, for the statistics of its batch norm alone.

    Attributes:
        memory: Number of projections that a client clusters.
        momentum: How much of itself the target keeps.
        temperature: What cosines with centroids are divided by.
    """

    views: ClassVar[int] = 3
    model: ClassVar[str] = "orchestra"
    compared: ClassVar[str] = "projections with centroids"

    name: str = "orchestra"
    memory: PositiveInt = 128
    momentum: Annotated[float, Field(ge=0, le=1)] = 0.996
    temperature: PositiveFloat = 0.1

    def head_of(self, network: nn.Module) -> OrchestraHead | None:
        from rayfl.models.orchestra import OrchestraHead

        return next((module for module in network.modules() if isinstance(module, OrchestraHead)), None)

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        import torch
        from torch.nn.functional import cross_entropy, normalize

        from rayfl.data.augmentation.quarter_turn import quarter_turned
        from rayfl.models.followed_head import follow

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
        told = head.rotation(batch.module(rotated))
        self._remember(batch.client, targets)
        return cross_entropy(told, turns.to(told.device)) - (clusters * likelihoods).sum(dim=1).mean()

    def _remember(self, client: ClientContext, targets: torch.Tensor) -> None:
        import torch

        before = [client.state["memory"]] if "memory" in client.state else []
        client.state["memory"] = torch.cat([targets, *before])[: self.memory]
