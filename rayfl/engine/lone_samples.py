"""Checks that batch norm gets no batch of a single sample, which it cannot normalise."""

from __future__ import annotations

import copy
from collections.abc import Collection

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from rayfl.config.local import Local
from rayfl.data.batches import BatchSource
from rayfl.data.store import ShardStore
from rayfl.errors import ScenarioError
from rayfl.local.steps import batches_of_steps


def check_lone_samples(
    local: Local,
    network: nn.Module,
    frozen: Collection[str],
    store: ShardStore,
    sizes: np.ndarray,
    where: str,
    pool: str = "",
) -> None:
    """Tries the network on one sample in training mode, if some client has a batch of one.

    Batch norm can normalise a single image by its pixels, but not a single vector.

    Args:
        local: Local training options, with numbers already drawn.
        network: The network with its initial parameters, on the CPU; it is not changed.
        frozen: Names of the modules that compute in evaluation mode.
        store: The data.
        sizes: int64 [clients], number of samples that each trains on; [1] for a pool.
        where: The key of local training.
        pool: Name of the training on pooled samples, for the message; empty if clients train.

    Raises:
        ScenarioError: The network raises; names the client or pool, and what to change.
    """
    if not any(isinstance(module, _BatchNorm) for module in network.modules()):
        return
    one_pass = local.model_copy(update={"epochs": 1})
    lone = [size for size in np.unique(sizes).tolist() if any(1 in step for step in batches_of_steps(one_pass, size))]
    if not lone:
        return
    x, _ = BatchSource(store, torch.device("cpu")).test_batch(slice(0, 1))
    tried = copy.deepcopy(network).train()
    for name in frozen:
        tried.get_submodule(name).eval()
    try:
        with torch.no_grad():
            tried(x)
    except ValueError as error:
        who = pool or f"client {int(np.flatnonzero(sizes == lone[0])[0])}"
        raise ScenarioError(
            f"{where}: {who} has {lone[0]} samples, which leave a batch of one that batch norm cannot normalise "
            f"({error}); set drop_last = true, or choose another batch_size"
        ) from None
