"""Checks that a sample's gradient is bitwise the same anywhere in a batch, which `secure` noise relies on."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rayfl.data.batches import BatchSource
from rayfl.errors import ScenarioError
from rayfl.models.modes import evaluation_mode
from rayfl.privacy.samples.batches import expected_batch_size, full_passes, pass_length
from rayfl.privacy.samples.per_sample import PerSampleGradients, taken

if TYPE_CHECKING:
    from rayfl.data.store import ShardStore
    from rayfl.engine.plan.phase_plan import PhasePlan
    from rayfl.engine.plan.workload import Workload
    from rayfl.local.training_plan import Selection
    from rayfl.models.flat import FlatModel

MOVES = (1, 3, 8)
"""Numbers of positions by which the samples of a pass are shifted."""


def check_batch_order(plan: PhasePlan, model: FlatModel, workload: Workload, selection: Selection | None) -> None:
    """Compares passes of the lengths that a phase uses with the same passes in another order, in evaluation mode.

    Args:
        plan: A phase with `local.dp` and `secure`.
        model: Its model, on the CPU.
        workload: What it trains.
        selection: The part of the network that trains; None for all.

    Raises:
        ScenarioError: A bit of a gradient changes, or samples differ in length and pad each other.
    """
    dp, where = plan.phase.local.dp, f"phases.{plan.phase.name}.local.dp.secure"
    assert dp is not None
    if workload.store.collate:
        raise ScenarioError(
            f"{where}: samples of different lengths are padded to the longest of their batch, which changes the last "
            "bits of the others; give all samples the same length, or leave secure out"
        )
    training: Any = nullcontext() if selection is None else model.training_only(selection.tensors)
    with training, evaluation_mode(model.module):
        gradients, source = PerSampleGradients(model, workload.task), BatchSource(workload.store, torch.device("cpu"))
        for length in _pass_lengths(plan, workload.store):
            places, _ = next(full_passes(np.arange(min(length, len(workload.store.train))), length))
            if name := _changed(gradients, *source.batch("train", places)):
                raise ScenarioError(
                    f"{where}: the last bits of a sample's gradient depend on its position in the batch, for '{name}' "
                    f"of model {type(model.module).__name__}, and nothing hides that; compute one at a time "
                    f"(physical_batch_size = {dp.augmentations}), or use other layers"
                )


def _pass_lengths(plan: PhasePlan, store: ShardStore) -> set[int]:
    """For the clients with the fewest and the most samples, or for the pool."""
    sizes, local = store.train_shards.sizes, plan.phase.local
    assert local.dp is not None
    compared = [sizes.sum()] if plan.phase.pool else [sizes.min(), sizes.max()]
    return {pass_length(local.dp, expected_batch_size(local, int(size)), int(size)) for size in compared}


def _changed(gradients: PerSampleGradients, x: Any, y: torch.Tensor) -> str:
    """The name of a parameter whose gradients change when the samples of a pass are shifted; empty if there is none."""
    one = gradients.of_each(x, y)
    for by in MOVES:
        moved = torch.arange(len(y)).roll(by)
        other = gradients.of_each(taken(x, moved), y[moved])
        for name, gradient in one.items():
            if not torch.equal(gradient[moved], other[name]):
                return name
    return ""
