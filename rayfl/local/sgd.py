"""Local training: mini-batch SGD on the flat parameter vector of a resident model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import torch

from rayfl.config.phase import Local
from rayfl.errors import RayflError
from rayfl.models.flat import FlatModel

if TYPE_CHECKING:
    from rayfl.local.client import Client


class Objective(Protocol):
    """What is minimised, and how its steps are corrected: every algorithm is one."""

    def loss(self, client: Client, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor: ...

    def gradient_correction(self, client: Client, params: torch.Tensor) -> torch.Tensor | None: ...

    def step_correction(self, client: Client, params: torch.Tensor) -> torch.Tensor | None: ...

    def extra_weight_decay(self, client: Client) -> float: ...


class DivergenceError(RayflError):
    """A loss or a parameter of a visit stopped being a finite number."""


def train(
    client: Client,
    model: FlatModel,
    batches: Iterator[tuple[torch.Tensor, torch.Tensor]],
    stages: Sequence[tuple[int, Sequence[str] | None]],
    objective: Objective,
    local: Local,
    lr: float,
) -> list[float]:
    """Trains `model` in place, with a fresh optimiser; returns the loss of every step.

    A step: gradient of the objective's loss, plus its correction, clipped to `local.clip_norm`, then PyTorch's
    SGD (g + weight_decay w into the momentum buffer). Clipping before weight decay is what the FedDyn, FedBug
    and FedExP code does, where decay belongs to the optimiser.

    stages: (number of steps, names of the modules that train in them or None for all), which take all the batches.
        Nothing happens to what does not train; its momentum starts when it thaws.

    Raises:
        DivergenceError: says at which step.
    """
    model.module.train()
    velocity = torch.zeros_like(model.params) if local.momentum else None
    decay = local.weight_decay + objective.extra_weight_decay(client)
    losses: list[torch.Tensor] = []
    for steps, modules in stages:
        with nullcontext([slice(None)]) if modules is None else model.training_only(modules) as parts:
            for x, y in islice(batches, steps):
                model.zero_gradient()
                loss = objective.loss(client, x, y)
                loss.backward()  # type: ignore[no-untyped-call]
                with torch.no_grad():
                    _step(client, model, parts, velocity, objective, local, decay, lr)
                losses.append(loss.detach())
    values: list[float] = torch.stack(losses).tolist()
    _check_finite(values, model.params)
    return values


def _step(
    client: Client,
    model: FlatModel,
    parts: Sequence[slice],
    velocity: torch.Tensor | None,
    objective: Objective,
    local: Local,
    decay: float,
    lr: float,
) -> None:
    """One step of SGD on the parts of the vector that train; elsewhere the gradient is zero."""
    params, gradient = model.params, model.gradient
    correction = objective.gradient_correction(client, params)
    if correction is not None:
        for part in parts:
            gradient[part].add_(correction[part])
    if local.clip_norm is not None:
        gradient.mul_((local.clip_norm / (gradient.norm() + 1e-6)).clamp(max=1.0))
    for part in parts:
        step = gradient[part]
        if decay:
            step.add_(params[part], alpha=decay)
        if velocity is not None:
            step = velocity[part].mul_(local.momentum).add_(step)
        params[part].add_(step, alpha=-lr)
    correction = objective.step_correction(client, params)
    if correction is not None:
        for part in parts:
            params[part].add_(correction[part], alpha=-lr)


def _check_finite(losses: list[float], params: torch.Tensor) -> None:
    """One look after the last step: a loss that is not finite stays so, and a GPU is not made to wait at each step."""
    for step, value in enumerate(losses, start=1):
        if not math.isfinite(value):
            raise DivergenceError(
                f"the loss is {value} at step {step} of {len(losses)}; a smaller lr or clip_norm may help"
            )
    if not bool(torch.isfinite(params).all()):
        raise DivergenceError(f"parameters are not finite after step {len(losses)}; a smaller lr or clip_norm may help")
