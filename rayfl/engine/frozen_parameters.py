"""Finds the parameters that nothing changes, which therefore are in no message."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import nn

from rayfl.data.batches import BatchSource
from rayfl.data.store import ShardStore
from rayfl.engine.initial_model import TORCH_GLOBALS
from rayfl.models.flat import FlatModel
from rayfl.models.tensor_names import followed

SHIFT = 0.1
"""Added to the trained parameters in a trial, so that what follows them has a difference to follow."""


def frozen_parameters(model: FlatModel, store: ShardStore) -> frozenset[str]:
    """Names the parameters without gradient (`requires_grad=False`) that the network's own code leaves as they are.

    Modules that follow others (`Network.copies`) are moved by their task. Whatever else the network moves itself, such
    as a moving average of other parameters, shows in a trial: a training step and an evaluation of two samples, with
    other values of the trained parameters.

    Args:
        model: The initial model on the CPU; it is not changed.
        store: The data.
    """
    copies = getattr(model.module, "copies", {})
    parameters = {name for name, _ in model.module.named_parameters(remove_duplicate=False)}
    without_gradient = [
        slot
        for slot in model.layout
        if not slot.is_parameter and slot.name in parameters and not followed(slot.name, copies)
    ]
    if not without_gradient:
        return frozenset()
    before, left = model.vector.clone(), torch.empty(0)
    shifted = model.elsewhere(model.params + SHIFT)
    # a network that fails here fails in its first training step, with its own error
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]), shifted, suppress(Exception):
        _step(model.module, store)
        left = model.vector.clone()
    model.zero_gradient()
    model.module.eval()
    if not len(left):
        return frozenset()
    same = [slot for slot in without_gradient if torch.equal(slot.view(before), slot.view(left))]
    return frozenset(name for slot in same for name in slot.names)


def _step(module: nn.Module, store: ShardStore) -> None:
    x, _ = BatchSource(store, torch.device("cpu")).test_batch(slice(0, 2))
    outputs = module.train()(x)
    outputs.sum().backward()
    with torch.no_grad():
        module.eval()(x)
