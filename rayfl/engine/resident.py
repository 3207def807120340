"""A workload on a host: its network in memory, its data on the device, and what trains and scores there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from rayfl.config.local import Local, Train
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.engine.client_statistics import ClientStatistics
from rayfl.engine.executors.executor import Executor
from rayfl.engine.executors.one_by_one import OneByOne
from rayfl.engine.executors.private import Private
from rayfl.engine.initial_model import build_network
from rayfl.engine.message_sizes import MessageSizes
from rayfl.engine.scoring import Score, Scorer
from rayfl.local.context import ClientContext, ClientState, ClientStreams
from rayfl.local.requests import ClientUpdate
from rayfl.local.selection import select
from rayfl.models.flat import FlatModel
from rayfl.planning.headline import headline_of
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.slices import Slice
from rayfl.planning.workload import Workload
from rayfl.tasks.metrics.building import build_metrics

T = TypeVar("T")


class Resident:
    """A workload as one host holds it.

    Attributes:
        model: The one model on which all of the host's clients train, one after the other.
        workload: What it was made from.
        scorer: Scores models, and combines scores.

    Args:
        scenario: What runs.
        workload: What to hold.
        device: Where.
    """

    def __init__(self, scenario: Scenario, workload: Workload, device: torch.device) -> None:
        self.workload = workload
        self._scenario, self._device = scenario, device
        self.model = FlatModel(self._network(), device)
        metrics = build_metrics(workload.evaluation.metrics, workload.task, workload.num_outputs)
        headline = headline_of(workload.evaluation.headline or next(iter(metrics)), metrics)
        self.scorer = Scorer(workload.task, metrics, ClientStatistics(headline, workload))
        self._initial_buffers = self.model.buffers.clone()
        self._source = BatchSource(workload.store, device, scenario.resources.device_cache_bytes)
        parts = self.model, self._source, device, workload.task
        self._plain: Executor = OneByOne(*parts)
        self._private: Executor = Private(*parts)

    def context(
        self,
        client: int,
        local: Local,
        lr: float,
        streams: ClientStreams,
        state: ClientState | None = None,
        first_model: torch.Tensor | None = None,
        num_values: int | None = None,
        train: tuple[Train, ...] = (),
        reports: frozenset[str] = frozenset(),
        noise_multiplier: float | None = None,
    ) -> ClientContext:
        """A client's view of its update; see `ClientContext`."""
        num_samples = self._source.num_samples(client)
        return ClientContext(
            id=client,
            num_samples=num_samples,
            relative_size=num_samples / self._source.mean_samples,
            local=local,
            lr=lr,
            streams=streams,
            state=ClientState({}, frozenset()) if state is None else state,
            model=self.model,
            random_model=self._random_model,
            initial_buffers=self._initial_buffers,
            first_model=first_model,
            num_values=self.model.num_params if num_values is None else num_values,
            train=train,
            reports=reports,
            noise_multiplier=noise_multiplier,
        )

    def run(self, client: ClientContext, update: Callable[[ClientContext], ClientUpdate[T]]) -> T:
        """Runs a client update and returns its result."""
        executor = self._plain if client.local.dp is None else self._private
        ((_, result),) = executor.run([client], update)
        return result

    def score(self, part: Slice) -> Score:
        """Scores the resident model on a slice."""
        size = self.workload.evaluation.batch_size
        pieces = (slice(first, min(first + size, part.stop)) for first in range(part.start, part.stop, size))
        return self.scorer.score(self.model.module, (self._source.batch(part.set, piece) for piece in pieces), part)

    def message_sizes(self, plan: PhasePlan) -> MessageSizes:
        """The sizes of the messages of a phase that trains this workload."""
        selection, algorithm = select(plan.train, self.model.module), plan.algorithm
        return MessageSizes(self.model, selection, algorithm.buffers_are_sent(), algorithm.stays_local)

    def _random_model(self, seed: int) -> torch.Tensor:
        return FlatModel(self._network(seed), self._device).vector

    def _network(self, seed: int | None = None) -> nn.Module:
        workload = self.workload
        return build_network(self._scenario, workload.network, workload.store, workload.num_outputs, seed)
