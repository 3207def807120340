"""Local training: mini-batch SGD on the flat parameter vector of a resident model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import islice

import torch
from torch import nn

from rayfl.config.phase import Local
from rayfl.errors import DivergenceError
from rayfl.local.features import features_and_outputs
from rayfl.local.peekable_iterator import PeekableIterator
from rayfl.local.requests import LocalTraining
from rayfl.local.training_batch import TrainingBatch
from rayfl.models.flat import FlatModel
from rayfl.tasks.task import Task

Batches = PeekableIterator[tuple[torch.Tensor, torch.Tensor]]


def train(
    model: FlatModel,
    batches: Batches,
    stages: Sequence[tuple[int, Sequence[str] | None]],
    request: LocalTraining,
    local: Local,
    lr: float,
    task: Task,
) -> list[float]:
    """Trains `model` in place from where it is, with a fresh optimizer.

    A step: the gradient of the loss plus the request's `gradient` terms, clipped to `local.clip_norm`, then PyTorch's
    SGD (g + weight_decay w into the momentum buffer), then the `after_step` terms. Clipping before weight decay is what
    the code of FedDyn, FedBug and FedExP does, where decay belongs to the optimizer.

    Args:
        model: The resident model, already loaded with the request's start.
        batches: All the batches (x, y) of the client update.
        stages: (number of steps, names of the modules that train in them or None for all), which take all the batches.
            Nothing happens to what does not train; its momentum starts when it thaws.
        request: What to add to loss, gradients and steps.
        local: Clipping, decay and momentum.
        lr: The learning rate.
        task: What is learned.

    Returns:
        The loss of every step.

    Raises:
        DivergenceError: A loss or a parameter is not finite; says at which step.
    """
    model.module.train()
    velocity = torch.zeros_like(model.params) if local.momentum else None
    decay = local.weight_decay + request.weight_decay
    losses: list[torch.Tensor] = []
    for steps, modules in stages:
        with nullcontext([slice(None)]) if modules is None else model.training_only(modules) as parts:
            for x, y in islice(batches, steps):
                model.zero_gradient()
                loss = _loss(model.module, x, y, batches, request, task)
                loss.backward()  # type: ignore[no-untyped-call]
                with torch.no_grad():
                    _step(model, parts, velocity, request, local, decay, lr)
                losses.append(loss.detach())
    values: list[float] = torch.stack(losses).tolist()
    _check_finite(values, model.params)
    return values


def _loss(
    module: nn.Module, x: torch.Tensor, y: torch.Tensor, batches: Batches, request: LocalTraining, task: Task
) -> torch.Tensor:
    if not request.terms:
        return task.objective(module, x, module(x), y)
    features, outputs = features_and_outputs(module, x) if request.reads_features else (None, module(x))
    batch = TrainingBatch(x, y, outputs, lambda number: [inputs for inputs, _ in batches.peek(number)], features)
    loss = task.objective(module, x, outputs, y)
    for term in request.terms:
        loss = loss + term(batch)
    return loss


def _step(
    model: FlatModel,
    parts: Sequence[slice],
    velocity: torch.Tensor | None,
    request: LocalTraining,
    local: Local,
    decay: float,
    lr: float,
) -> None:
    """One step of SGD on the parts of the vector that train; elsewhere the gradient is zero."""
    params, gradient = model.params, model.gradient
    for affine in request.gradient:
        correction = affine.at(params)
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
    for affine in request.after_step:
        correction = affine.at(params)
        for part in parts:
            params[part].add_(correction[part], alpha=-lr)


def _check_finite(losses: list[float], params: torch.Tensor) -> None:
    """Checks once, after the last step: a loss that is not finite stays so, and a check per step would stall a GPU."""
    for step, value in enumerate(losses, start=1):
        if not math.isfinite(value):
            raise DivergenceError(
                f"training diverged: the loss is {value} at step {step} of {len(losses)}; a smaller lr or clip_norm "
                "may help"
            )
    if not bool(torch.isfinite(params).all()):
        raise DivergenceError(
            f"training diverged: parameters are not finite after step {len(losses)}; a smaller lr or clip_norm may help"
        )
