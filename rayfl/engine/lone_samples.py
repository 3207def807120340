"""Whether batch norm would meet a batch of one sample, which it cannot normalise by itself."""

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
    """Tries the network on one sample, as it trains, if some client has a batch of one.

    Batch norm of images may normalise one sample by its pixels; that of vectors may not.

    Args:
        local: Its numbers have been drawn.
        network: With its initial parameters, on the CPU; it is not changed.
        frozen: Names of the modules that compute in evaluation mode.
        store: The data.
        sizes: [clients] int64, the samples that each trains on; [1] those of a pool.
        where: The key of local training.
        pool: What trains on pooled samples, for the message; empty where clients train.

    Raises:
        ScenarioError: The network refuses; says who trains and what helps.
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
            f"{where}: of its {lone[0]} samples {who} has one left for a batch of its own, which batch norm "
            f"cannot normalise ({error}); set drop_last = true, or choose another batch_size"
        ) from None
