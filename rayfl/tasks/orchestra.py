"""Orchestra's local objective: both views of an image share a global cluster, and its rotation is predicted."""

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
