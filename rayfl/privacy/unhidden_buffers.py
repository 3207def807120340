"""Rejects networks with integers or flags that training changes, under differential privacy of samples or clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rayfl.models.flat import FlatModel
from rayfl.planning.phase_plan import PhasePlan

if TYPE_CHECKING:
    from rayfl.planning.workload import Workload


def check_discrete_buffers(plan: PhasePlan, model: FlatModel, workload: Workload) -> None:
    """Tries a batch of two training samples; a buffer that changes later ends the run with the same message.

    Args:
        plan: The phase.
        model: Its initial model, on the CPU; loaded with its initial values.
        workload: What it trains.

    Raises:
        ScenarioError: An integer or boolean buffer changes, and the phase has `local.dp` or `dp`.
    """
    if not plan.hidden_by or not model.discrete_names:
        return
    import torch

    from rayfl.data.batches import BatchSource
    from rayfl.local.discrete_buffers import changes_under_dp
    from rayfl.local.selection import select
    from rayfl.models.modes import training_without_dropout

    selection, initial, before = select(plan.train, model.module), model.vector.clone(), model.discrete()
    x, _ = BatchSource(workload.store, torch.device("cpu")).batch("train", slice(0, 2))
    mode = training_without_dropout(model.module, selection.frozen if selection else ())
    with torch.random.fork_rng(devices=[]), mode, torch.no_grad():
        model.module(x)
    after = model.discrete()
    model.load(initial, before)
    for name, value in before.items():
        if not torch.equal(value, after[name]):
            raise changes_under_dp(plan.hidden_by, name, model.module)
