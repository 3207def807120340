"""The committed rounds of a run: the latest by kind of event, and their models as state dicts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from rayfl.engine.backend import BackendSession
from rayfl.engine.events import BudgetSpent, Evaluated, Event, RoundDone, RoundSettled
from rayfl.engine.initial_model import flat_model, load_initial
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.workload import Workload
from rayfl.models.flat import FlatModel
from rayfl.models.tensors import SentModel, constants_of, split

if TYPE_CHECKING:
    import torch


_KINDS: dict[type[Event], str] = {
    RoundDone: "done",
    Evaluated: "evaluated",
    RoundSettled: "settled",
    BudgetSpent: "ended",
}


class LatestRounds:
    """The latest round whose event the run has seen, by kind of event.

    Args:
        state: The result of `state`, if the run continues.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._rounds: dict[str, int] = dict.fromkeys(_KINDS.values(), 0) | dict(state or {})

    @property
    def done(self) -> int:
        """The last committed round."""
        return self._rounds["done"]

    def has(self, event: Event) -> bool:
        """Whether an event was seen before, as happens in rounds repeated after a death or a stop."""
        kind = _KINDS.get(type(event))
        return kind is not None and event.round <= self._rounds[kind]

    def add(self, event: Event) -> None:
        """Records an event as seen."""
        if kind := _KINDS.get(type(event)):
            self._rounds[kind] = event.round

    def state(self) -> dict[str, int]:
        """As plain data."""
        return dict(self._rounds)


class CommittedModels:
    """Converts models to state dicts; phases may have models of different layouts.

    Args:
        run_plan: The run's plan.
        model: The model of the last phase; overwritten.
    """

    def __init__(self, run_plan: RunPlan, model: FlatModel) -> None:
        self._plan, self._model = run_plan, model
        load_initial(model, run_plan.result.initial)
        self._built: dict[int, FlatModel] = {}
        self._last_rounds = list(accumulate(phase.rounds for phase in run_plan.scenario.phases))

    def of(self, session: BackendSession | None) -> tuple[int, dict[str, torch.Tensor]]:
        """The number of the last committed round (0 before the first) and its model with PyTorch's names."""
        if session is None:
            return 0, self._model.state_dict()
        round, committed = session.committed()
        return round, self.after(round, committed)

    def after(self, round: int, committed: SentModel) -> dict[str, torch.Tensor]:
        """The model after a round with PyTorch's names."""
        import torch

        from rayfl.local.client_state import on_device
        from rayfl.models.constants import as_view

        vector, discrete = split(committed)
        model, workload = self._of_round(round)
        constants = constants_of(committed)
        model.constants.hold(as_view(workload.initial.constants if constants is None else constants))
        model.load(torch.from_numpy(np.asarray(vector)), on_device(discrete, torch.device("cpu")))
        return model.state_dict()

    def _of_round(self, round: int) -> tuple[FlatModel, Workload]:
        phase = bisect_left(self._last_rounds, round)
        workload = self._plan.workloads[phase]
        if workload is self._plan.result:
            return self._model, workload
        if phase not in self._built:
            self._built = {phase: flat_model(self._plan.scenario, workload)}  # drops earlier phases' models
        return self._built[phase], workload
