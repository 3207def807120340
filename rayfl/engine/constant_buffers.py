"""Finds the integer and boolean buffers that nothing changes, which therefore are in no message."""

from __future__ import annotations

from contextlib import suppress

import torch

from rayfl.data.batches import BatchSource
from rayfl.data.store import ShardStore
from rayfl.engine.frozen_parameters import SHIFT
from rayfl.engine.initial_model import TORCH_GLOBALS
from rayfl.models.flat import FlatModel
from rayfl.models.tensor_names import followed


def constant_buffers(model: FlatModel, store: ShardStore) -> frozenset[str]:
    """Names the buffers that the network leaves as they are, such as attention masks and indices of positions.

    As for `frozen_parameters`, a trial shows the others: forward passes of two samples in training and in evaluation
    mode, with other values of the trained parameters.

    Args:
        model: The initial model on the CPU; it is not changed.
        store: The data.
    """
    if not model.discrete_names:
        return frozenset()
    before, left = model.discrete(), dict[str, torch.Tensor]()
    shifted = model.elsewhere(model.params + SHIFT)
    # a network that fails here fails in its first training step, with its own error
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]), shifted, suppress(Exception), torch.no_grad():
        x, _ = BatchSource(store, torch.device("cpu")).test_batch(slice(0, 2))
        model.module.train()(x)
        model.module.eval()(x)
        left = model.discrete()
    model.module.eval()
    copies = getattr(model.module, "copies", {})
    same = (name for name, value in left.items() if torch.equal(value, before[name]))
    return frozenset(name for name in same if not followed(name, copies))
