"""MOON: a contrastive term pulls a client's features towards the global model's and away from its previous model's.

Li, He and Song, "Model-Contrastive Federated Learning", CVPR 2021, eq. 3 and alg. 1.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from pydantic import NonNegativeFloat, PositiveFloat, model_validator

from rayfl.algorithms.penalty import Penalty
from rayfl.config.section import check_idle
from rayfl.local.state import Declaration

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import LossTerm
    from rayfl.local.training_batch import TrainingBatch

SAMPLES_AT_ONCE = 256
"""Samples per pass through the frozen models: computing upcoming batches along with the current one is faster."""


class Contrastive(Penalty):
    """Adds mu * mean -log(e^(cos(z, z_g) / tau) / (e^(cos(z, z_g) / tau) + e^(cos(z, z_p) / tau))).

    z, z_g and z_p are the features of the same augmented batch under the trained model, the received model and the
    client's previous model; the latter two are in evaluation mode. The paper's network has a projection head before its
    classifier: use the model `projected` for it. NIID-Bench's networks have none.

    Example-level DP (`local.dp`) is not supported: it clips only the task's loss.

    Attributes:
        mu: Weight of the term, at least 0; CyclicFL uses 0.1.
        tau: Temperature, above 0.
        first: The previous model of a client that has none yet. `skip`: no term, as in the first round of MOON's code.
            `random`: a random network for each client, as in MOON's later code and FedDecorr's. `initial`: the
            phase's first global model, which the server sends along in every round.
        divide_by_tau: Whether to divide the cosines by tau; FedDecorr's code does not.
    """

    name: str = "contrastive"
    mu: NonNegativeFloat = 1.0
    tau: PositiveFloat = 0.5
    first: Literal["skip", "initial", "random"] = "skip"
    divide_by_tau: bool = True

    @model_validator(mode="after")
    def _no_idle_options(self) -> Contrastive:
        check_idle(self, {"tau": not self.divide_by_tau}, "with divide_by_tau = false")
        return self

    def reads_features(self) -> bool:
        return True

    def reads_first_model(self) -> bool:
        return self.first == "initial"

    def client_state(self) -> Declaration:
        return {"previous": "phase"}

    def term(self, client: ClientContext, start: torch.Tensor) -> LossTerm | None:
        previous = client.state.get("previous")
        if previous is None and self.first == "random":
            previous = client.random_model("moon")
        elif previous is None and self.first == "initial":
            previous = client.first_model
        if previous is None:
            return None
        features_of = client.frozen_features(start), client.frozen_features(previous)

        # -log(e^a / (e^a + e^b)) is softplus(b - a), and the difference of two cosines with z is one dot product
        def pull(x: torch.Tensor) -> torch.Tensor:
            from torch.nn.functional import normalize

            near, far = (normalize(features(x)) for features in features_of)
            return (far - near) / self.tau if self.divide_by_tau else far - near

        pulls = _TogetherWithComingBatches(pull)

        def contrast(batch: TrainingBatch) -> torch.Tensor:
            from torch.linalg import vecdot, vector_norm
            from torch.nn.functional import softplus

            lengths = vector_norm(batch.features, dim=1).clamp_min(1e-12)  # as in `normalize`, with fewer operations
            return self.mu * softplus(vecdot(batch.features, pulls(batch)) / lengths).mean()

        return contrast

    def after_training(self, client: ClientContext, trained: torch.Tensor) -> None:
        client.state["previous"] = trained


class _TogetherWithComingBatches:
    """Applies a row-wise function of the inputs to a batch and the batches that follow it, in one pass."""

    def __init__(self, compute: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._compute = compute
        self._computed: deque[tuple[torch.Tensor, torch.Tensor]] = deque()

    def __call__(self, batch: TrainingBatch) -> torch.Tensor:
        import torch

        while self._computed and self._computed[0][0] is not batch.x:
            self._computed.popleft()
        if not isinstance(batch.x, torch.Tensor):  # named inputs
            return self._compute(batch.x)
        if not self._computed:
            shape = batch.x.shape[1:]
            upcoming = batch.upcoming(SAMPLES_AT_ONCE // len(batch.x) - 1)
            inputs = [batch.x, *takewhile(lambda x: x.shape[1:] == shape, upcoming)]  # padded batches differ in shape
            rows = self._compute(torch.cat(inputs))
            parts = torch.split(rows, [len(x) for x in inputs])
            self._computed.extend(zip(inputs, parts, strict=True))
        return self._computed[0][1]
