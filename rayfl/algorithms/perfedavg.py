"""Per-FedAvg: minimises the loss after one gradient step, so that clients adapt the global model quickly.

Fallah, Mokhtari and Ozdaglar, "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic
Meta-Learning Approach", NeurIPS 2020, alg. 1, with the approximations of its section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveFloat, model_validator

from rayfl.algorithms.algorithm import Algorithm, Round
from rayfl.algorithms.exchange import Answer, Exchange, Released
from rayfl.algorithms.fedavg import check_uniform
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.local import RATE_KEYS
from rayfl.config.section import check_idle
from rayfl.errors import DivergenceError
from rayfl.local.queries import DataView, Gradient, LossAndGradient
from rayfl.local.steps import batch_size
from rayfl.models.tensors import all_finite

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext
    from rayfl.local.requests import ClientUpdate

BATCHES = ("adaptation batch", "meta batch", "Hessian batch")
"""The random streams from which an iteration draws D_1, D_2 and D_3."""


class PerFedAvg(Algorithm):
    """Averages models after tau local steps w <- w - beta g, each after an adaptation w' = w - alpha grad f(w; D_1).

        first order: g = v = grad f(w'; D_2);
        Hessian-free: g = v - alpha (grad f(w + delta v; D_3) - grad f(w - delta v; D_3)) / (2 delta).

    beta is `local.lr`. tau is the number of steps that follows from `local` (`epochs`, `steps`, `batch_size`), but
    every iteration draws its batches anew from all of the client's samples, independently of each other and each
    without replacement. D_1 and D_2 are augmented; D_3 is not, because both of its gradients must see the same inputs.
    Gradients are taken in evaluation mode, without dropout. The training loss is f(w'; D_2), which is what is
    minimised.

    FedBABU's code runs both gradients through one momentum buffer, which lets the adaptation's gradients leak into the
    steps; here neither has momentum. To evaluate after adaptation, set `evaluation.personalize = { steps = 1, lr =
    alpha }`.

    Example-level DP (`local.dp`): every gradient and loss of a batch is clipped, noised, and charged as if it covered
    all samples. Client-level DP (`phases.N.dp`): the change is clipped and noised.

    Attributes:
        variant: `first_order` omits the Hessian; `hessian_free` approximates it by a difference of gradients.
        inner_lr: alpha, the learning rate of the adaptation, above 0.
        delta: Step of the difference, as a multiple of v, above 0. Much smaller values are lost to rounding in float32.
        weighting: `uniform`: the paper's plain mean of the clients' models. `samples`: weighted by sample counts.
    """

    local_options: ClassVar[frozenset[str]] = frozenset({"variant", "inner_lr", "delta"})

    variant: Literal["first_order", "hessian_free"] = "first_order"
    inner_lr: PositiveFloat = 0.01
    delta: PositiveFloat = 1e-3
    weighting: Literal["samples", "uniform"] = "uniform"

    @model_validator(mode="after")
    def _no_idle_options(self) -> PerFedAvg:
        check_idle(self, {"delta": self.variant == "first_order"}, "with variant = 'first_order'")
        return self

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        server.apply_update(answers.mean("delta")[: server.num_params])

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        """Takes the client's steps from the global model; answers with the weighted change."""
        trained = yield from self.relay(client, model)
        return Answer(client.num_samples if self.weighting == "samples" else 1.0, delta=trained - model)

    def relay(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[torch.Tensor]:
        trained, losses = model.clone(), model.new_zeros(client.steps)
        for step, batches in enumerate(_batches(client)):
            losses[step], gradient = yield from self._meta_gradient(trained, *batches)
            trained[: client.num_params] -= client.lr * gradient
        if not (all_finite(losses) and all_finite(trained)):
            raise DivergenceError(
                f"training diverged: a loss or a parameter is not finite after {client.steps} steps; a smaller lr or "
                "inner_lr may help"
            )
        client.add_losses(losses.tolist())
        return trained

    def _meta_gradient(
        self, model: torch.Tensor, adaptation: DataView, meta: DataView, hessian: DataView
    ) -> ClientUpdate[tuple[torch.Tensor, torch.Tensor]]:
        """The loss after adaptation, [1], and g, [num_params]."""
        inner = yield Gradient(model, adaptation)
        loss, outer = yield LossAndGradient(_moved(model, -self.inner_lr * inner), meta)
        if self.variant == "first_order":
            return loss, outer
        ahead = yield Gradient(_moved(model, self.delta * outer), hessian)
        behind = yield Gradient(_moved(model, -self.delta * outer), hessian)
        return loss, outer - self.inner_lr * (ahead - behind) / (2 * self.delta)

    def releases(self) -> Released:
        check_uniform(self.weighting)
        return Released({"delta": "model"})

    def local_keys(self) -> frozenset[str] | None:
        return RATE_KEYS | {"epochs", "steps", "batch_size"}

    def requirements(self) -> set[Requirement]:
        return {"no_running_statistics", "plain_objective"}


def _batches(client: ClientContext) -> Iterator[tuple[DataView, DataView, DataView]]:
    """Yields D_1, D_2 and D_3 of every iteration, each from its own random stream."""
    streams, size = [client.streams.numpy(purpose) for purpose in BATCHES], batch_size(client.local, client.num_samples)
    for _ in range(client.steps):
        adaptation, meta, hessian = (DataView(rng.choice(client.data.places, size, replace=False)) for rng in streams)
        yield adaptation.augmented(), meta.augmented(), hessian


def _moved(model: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """The model vector after a step of its parameters."""
    moved = model.clone()
    moved[: len(step)] += step
    return moved
