"""Rejects networks with integers or flags that training changes, under differential privacy of samples or clients."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.data.store import ShardStore
from rayfl.engine.initial_model import TORCH_GLOBALS, flat_model, load_initial
from rayfl.local.discrete_buffers import changes_under_dp
from rayfl.local.selection import select
from rayfl.models.discrete import Discrete
from rayfl.models.flat import FlatModel
from rayfl.models.modes import training_without_dropout
from rayfl.planning.phase_plan import PhasePlan, has_fresh_head, plan_phases
from rayfl.planning.workload import Workload


def check_discrete_buffers(scenario: Scenario, workloads: Sequence[Workload]) -> None:
    """Tries a batch of two training samples in every phase that is known to begin with initial values.

    Only phases under differential privacy leave integers and flags as they are, so none after one without it is tried.
    There, and wherever a later batch changes a buffer, the run ends with the same message.

    Args:
        scenario: The resolved scenario.
        workloads: The workload of each phase; if the scenario has a start, with the weights of that start.

    Raises:
        ScenarioError: An integer or boolean buffer changes, and the phase has `local.dp` or `dp`.
    """
    values: Discrete = {}
    tried = model = None
    for number, (plan, workload) in enumerate(zip(plan_phases(scenario), workloads, strict=True)):
        if not plan.hidden_by:
            return
        values = workload.initial.take_discrete(values, has_fresh_head(scenario, number))
        if not values:
            continue
        if model is None or workload is not tried:
            tried, model = workload, flat_model(scenario, workload)
        load_initial(model, workload.initial, values)
        _try(plan, model, workload.store)


def _try(plan: PhasePlan, model: FlatModel, store: ShardStore) -> None:
    selection, before = select(plan.train, model.module), model.discrete()
    x, _ = BatchSource(store, torch.device("cpu")).batch("train", slice(0, 2))
    mode = training_without_dropout(model.module, selection.frozen if selection else ())
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]), mode, torch.no_grad():
        model.module(x)
    for name, value in model.discrete().items():
        if not torch.equal(value, before[name]):
            raise changes_under_dp(plan.hidden_by, name, model.module)
