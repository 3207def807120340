"""Regularisers: terms that an algorithm adds to the local objective (the key `penalties`).

Proximal (FedProx) keeps local models near the global one: Li et al., "Federated Optimization in Heterogeneous
Networks", MLSys 2020, eq. 2.

Contrastive (MOON) pulls a client's features towards the global model's and away from its previous model's: Li, He and
Song, "Model-Contrastive Federated Learning", CVPR 2021, eq. 3 and alg. 1.

Decorrelation (FedDecorr) keeps local models from collapsing to few dimensions: Shi et al., "Towards Understanding and
Mitigating Dimensional Collapse in Heterogeneous Federated Learning", ICLR 2023.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, model_validator

from rayfl.config.component import Choice, Component
from rayfl.config.registry import Registry
from rayfl.config.section import check_idle
from rayfl.local.requests import Affine
from rayfl.local.state import Declaration

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from rayfl.local.batches import TrainingBatch
    from rayfl.local.context import ClientContext
    from rayfl.local.requests import LossTerm


penalties = Registry(
    "penalty",
    {
        "proximal": "rayfl.algorithms.penalty:Proximal",
        "contrastive": "rayfl.algorithms.penalty:Contrastive",
        "decorrelation": "rayfl.algorithms.penalty:Decorrelation",
    },
)


class Penalty(Component):
    """A regulariser of the local objective; derive from it to write your own.

    Define `affine` for a term that is affine-quadratic in the parameters (it is data, fused into the step, and free
    under `local.dp`), or `term` for any other function of the batch.

    Example:
        >>> from rayfl.algorithms import FedAvg, Penalty
        >>> class L1(Penalty):
        ...     name: str = "l1"
        ...     weight: float = 1e-4
        ...
        ...     def term(self, client, start):
        ...         return lambda batch: self.weight * sum(p.abs().sum() for p in batch.module.parameters())
        >>> FedAvg(penalties=(L1(weight=0.01), "proximal")).penalties
        (L1(name='l1', weight=0.01), Proximal(name='proximal', mu=0.01))
    """

    def reads_features(self) -> bool:
        """Whether the network must declare its feature layer."""
        return False

    def reads_first_model(self) -> bool:
        """Whether clients need the phase's first global model (`ClientContext.first_model`)."""
        return False

    def client_state(self) -> Declaration:
        """Declares the tensors that a client keeps for the regulariser, by name, with their scopes."""
        return {}

    def affine(self, client: ClientContext, start: torch.Tensor) -> Affine | None:
        """Returns the gradient of an affine-quadratic term; None if the regulariser has none.

        Args:
            client: The client.
            start: float32 [length of the model], the model that training starts from.
        """
        return None

    def term(self, client: ClientContext, start: torch.Tensor) -> LossTerm | None:
        """Returns a function from a batch to a scalar loss, created once per training request; None for no term.

        Args:
            client: The client.
            start: float32 [length of the model], the model that training starts from.
        """
        return None

    def after_training(self, client: ClientContext, trained: torch.Tensor) -> None:
        """Stores what later client updates need of the trained model in `client.state`.

        Args:
            client: The client.
            trained: float32 [length of the model].
        """


PenaltyField: Any = Choice(penalties, Penalty).field


class Proximal(Penalty):
    """Adds mu / 2 * ||w - w_received||^2 to every local objective; mu = 0 is FedAvg.

    Example-level DP (`local.dp`): the term does not depend on samples, so it is added after clipping and noise and is
    free.

    Attributes:
        mu: Weight of the term, at least 0. CyclicFL uses 0.01, FedBug and FedDyn's experiments 1e-4, CoPreFL 1.
    """

    name: str = "proximal"
    mu: NonNegativeFloat = 0.01

    def affine(self, client: ClientContext, start: torch.Tensor) -> Affine:
        return Affine(quadratic=self.mu, centre=start[: client.num_params])


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


class Decorrelation(Penalty):
    """Adds beta times a regulariser on the correlations of the features, the input of the network's feature layer.

    A batch of one sample has no correlations and adds nothing.

    Example-level DP (`local.dp`) is not supported: the correlations are those of a whole batch.

    Attributes:
        beta: Weight, at least 0. The authors use 0.1; FedBug uses 0.01 in its paper and 0.001 in its code.
        scaling: `correlation`: the paper's 1/d^2 ||R||_F^2 of the correlation matrix R, including the (constant)
            diagonal. `code`: the authors' code, 1/B * 1/(d (d - 1)) * sum over a != b of G_ab^2, where G = (B - 1) R is
            a sum over the batch of B samples; about B times as large.
    """

    name: str = "decorrelation"
    beta: NonNegativeFloat = 0.1
    scaling: Literal["correlation", "code"] = "correlation"

    def reads_features(self) -> bool:
        return True

    def term(self, client: ClientContext, start: torch.Tensor) -> LossTerm:
        def weighted(batch: TrainingBatch) -> torch.Tensor:
            features = batch.features
            return self.beta * self.penalty(features) if len(features) > 1 else features.new_zeros(())

        return weighted

    def penalty(self, features: torch.Tensor) -> torch.Tensor:
        """Computes the regulariser without its weight, a scalar.

        Args:
            features: [B, d].
        """
        batch, dimensions = features.shape
        standardized = (features - features.mean(dim=0)) / (features.var(dim=0) + 1e-8).sqrt()
        products = standardized.T @ standardized
        if self.scaling == "correlation":
            return (products / (batch - 1)).square().mean()
        off_diagonal = products.square().sum() - products.diagonal().square().sum()
        return off_diagonal / (batch * dimensions * (dimensions - 1))
