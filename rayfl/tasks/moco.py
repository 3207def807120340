"""Self-supervision by MoCo: a view's query identifies the key of the other view among keys of earlier samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from rayfl.errors import ScenarioError
from rayfl.tasks.self_supervised import SelfSupervised

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rayfl.config.local import Local
    from rayfl.local.context import ClientContext
    from rayfl.local.state import Declaration
    from rayfl.local.training_batch import TrainingBatch
    from rayfl.models.followed_head import FollowedHead


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
        from rayfl.models.followed_head import FollowedHead

        return next((module for module in network.modules() if isinstance(module, FollowedHead)), None)

    def check_local(self, local: Local, sizes: np.ndarray) -> None:
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

        from rayfl.models.followed_head import follow

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
