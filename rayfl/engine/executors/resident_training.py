"""Local training on the resident model, with gradients that an executor computes."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rayfl.engine.device import seed_torch
from rayfl.local.context import ClientContext
from rayfl.local.requests import LocalTraining
from rayfl.local.selection import select
from rayfl.local.sgd import StepGradient, train
from rayfl.local.state import VELOCITY
from rayfl.local.training_plan import plan_training
from rayfl.models.flat import FlatModel


def train_resident(
    model: FlatModel,
    gradients: StepGradient,
    client: ClientContext,
    request: LocalTraining,
    samples: int,
    seed: int,
    after_step: Callable[[], None] = lambda: None,
) -> torch.Tensor:
    """Trains a client's model in the resident one.

    Args:
        model: The resident model.
        gradients: Computes the gradient of every step.
        client: The client, which receives the steps' losses.
        request: The training request.
        samples: Number of samples to train on.
        seed: Seed of the network's random draws, such as dropout masks.
        after_step: Called after every step.

    Returns:
        A copy of the trained model vector.
    """
    plan = plan_training(client.local, select(client.train, model.module), model.module, samples)
    model.load(request.start, client.discrete.values)
    seed_torch(seed, model.vector.device)
    velocity = None
    if client.keeps_momentum:
        velocity = client.state[VELOCITY] if VELOCITY in client.state else torch.zeros_like(model.params)
        client.state[VELOCITY] = velocity  # updated in place by the optimizer
    client.add_losses(train(model, gradients, plan, request, client.local, client.lr, after_step, velocity))
    model.check()
    client.discrete.leave()
    return model.vector.clone()
