"""Local training: mini-batch SGD on the flat parameter vector of a resident model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import torch

from rayfl.config.phase import Local
from rayfl.errors import RayflError
from rayfl.models.flat import FlatModel

if TYPE_CHECKING:
    from rayfl.local.client import Client


class Objective(Protocol):
    """What is minimised: every algorithm is one."""

    def loss(self, client: Client, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor: ...

    def gradient_correction(self, client: Client, params: torch.Tensor) -> torch.Tensor | None: ...


class DivergenceError(RayflError):
    """A loss or a parameter of a visit stopped being a finite number."""


def train(
    client: Client,
    model: FlatModel,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    objective: Objective,
    local: Local,
    lr: float,
) -> list[float]:
    """Trains `model` in place on the batches, with a fresh optimiser; returns the loss of every step.

    A step: gradient of the objective's loss, plus its correction, clipped to `local.clip_norm`, then PyTorch's
    SGD (g + weight_decay w into the momentum buffer). Clipping before weight decay is what the FedDyn, FedBug
    and FedExP code does, where decay belongs to the optimiser.

    Raises:
        DivergenceError: says at which step.
    """
    model.module.train()
    params, gradient = model.params, model.gradient
    velocity: torch.Tensor | None = None
    losses: list[torch.Tensor] = []
    for x, y in batches:
        model.zero_gradient()
        loss = objective.loss(client, x, y)
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            correction = objective.gradient_correction(client, params)
            if correction is not None:
                gradient.add_(correction)
            if local.clip_norm is not None:
                gradient.mul_((local.clip_norm / (gradient.norm() + 1e-6)).clamp(max=1.0))
            if local.weight_decay:
                gradient.add_(params, alpha=local.weight_decay)
            step = gradient
            if local.momentum:
                velocity = gradient.clone() if velocity is None else velocity.mul_(local.momentum).add_(gradient)
                step = velocity
            params.add_(step, alpha=-lr)
        losses.append(loss.detach())
    values: list[float] = torch.stack(losses).tolist()
    _check_finite(values, params)
    return values


def _check_finite(losses: list[float], params: torch.Tensor) -> None:
    """One look after the last step: a loss that is not finite stays so, and a GPU is not made to wait at each step."""
    for step, value in enumerate(losses, start=1):
        if not math.isfinite(value):
            raise DivergenceError(
                f"the loss is {value} at step {step} of {len(losses)}; a smaller lr or clip_norm may help"
            )
    if not bool(torch.isfinite(params).all()):
        raise DivergenceError(f"parameters are not finite after step {len(losses)}; a smaller lr or clip_norm may help")
