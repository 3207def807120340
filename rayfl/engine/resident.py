"""A workload on a host: its network, its data on the device, and the code that trains and scores there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import torch

from rayfl.config.local import Local
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.engine.client_statistics import ClientStatistics
from rayfl.engine.client_updates import ClientUpdates
from rayfl.engine.device import TorchGenerators, seed_torch
from rayfl.engine.executors.executor import ClientSamples, Executor
from rayfl.engine.executors.one_by_one import OneByOne
from rayfl.engine.executors.private import Private
from rayfl.engine.executors.stacked import Stacked
from rayfl.engine.initial_model import model_as_built
from rayfl.engine.plan.headline import headline_of
from rayfl.engine.plan.message_sizes import MessageSizes
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.slices import Slice
from rayfl.engine.plan.workload import Workload
from rayfl.engine.scoring import Score, Scorer, evaluation_batches
from rayfl.errors import DataError
from rayfl.local.client_state import ClientState, Values
from rayfl.local.context import ClientContext, ClientFacts, ClientNetwork, ClientStreams, UpdatePlan
from rayfl.local.spending import Spending
from rayfl.models.constants import as_tensor
from rayfl.streams import torch_seed
from rayfl.tasks.metrics.construction import build_metrics

T = TypeVar("T")


SourceKey = tuple[int, int | None]


def source_key(workload: Workload) -> SourceKey:
    """What workloads that can share batches agree in."""
    return id(workload.store), workload.task.ignored_label


def batch_sources(
    scenario: Scenario, workloads: Sequence[Workload], device: torch.device
) -> dict[SourceKey, BatchSource]:
    """Opens the data of workloads, once where they have the same, and divides the device's memory for samples."""
    for workload in workloads:
        workload.store.reopen()  # before training, rather than with the first batch
    distinct = {source_key(workload): workload for workload in workloads}
    cache_bytes = scenario.resources.device_cache_bytes // len(distinct)
    return {key: BatchSource(one.store, device, cache_bytes, key[1]) for key, one in distinct.items()}


class Resident:
    """A workload as one host holds it.

    Attributes:
        model: The model on which all of the host's clients train, one after the other.
        workload: The workload.
        scorer: Scores models, and combines scores.

    Args:
        scenario: The scenario.
        workload: The workload.
        device: The device to train on.
        source: Makes the batches.
    """

    def __init__(self, scenario: Scenario, workload: Workload, device: torch.device, source: BatchSource) -> None:
        self.workload = workload
        self._scenario, self._device = scenario, device
        self.model = model_as_built(scenario, workload, device)
        self._held = workload.initial.constants  # in use by the model, so no other array can have its address
        metrics = build_metrics(workload.evaluation.metrics, workload.task, workload.num_outputs)
        headline = headline_of(workload.evaluation, metrics)
        self.scorer = Scorer(workload.task, metrics, ClientStatistics(headline, workload))
        self._trained = ClientNetwork(self.model, self.model.buffers.clone(), self._random_model)
        self._source = source
        generators = TorchGenerators(device)
        parts = self.model, ClientSamples(self._source, device, workload.task), workload.task, generators
        chain: list[Executor] = [OneByOne(*parts)]
        if scenario.numerics.clients_at_once > 1:
            chain.insert(0, Stacked(*parts))
        self._plain, self._private = ClientUpdates(chain, generators), ClientUpdates([Private(*parts)], generators)

    def context(
        self,
        client: int,
        plan: UpdatePlan,
        streams: ClientStreams,
        state: ClientState | None = None,
        noise_multiplier: float | None = None,
        planned: Spending | None = None,
        discrete: Values | None = None,
        hidden_by: str = "",
    ) -> ClientContext:
        """Returns a client's view of its update; see `ClientFacts`. Without `state` it keeps nothing."""
        num_samples = self._source.num_samples(client)
        facts = ClientFacts(
            client,
            num_samples,
            num_samples / self._source.mean_samples,
            streams,
            ClientState({}, frozenset()) if state is None else state,
            noise_multiplier,
            planned,
            discrete,
            hidden_by,
        )
        return ClientContext(plan, facts, self._trained)

    def hold(self, constants: np.ndarray | None) -> None:
        """Makes the model compute with the constants of a message.

        Args:
            constants: Those that it brings along; None for the workload's.
        """
        held = self.workload.initial.constants if constants is None else constants
        memory = self.model.constants.memory
        if len(held) != len(memory):
            raise RuntimeError(f"a model has {len(held)} values of constants, but its network needs {len(memory)}")
        if held.ctypes.data != self._held.ctypes.data:
            self.model.constants.hold(as_tensor(held))
            self._held = held

    def updates(self, local: Local) -> ClientUpdates:
        """Returns what runs client updates with these options: with DP if `local.dp` is set."""
        return self._plain if local.dp is None else self._private

    def not_finite(self, client: int) -> str:
        """What of a client's samples is not finite, if the data could not be checked before the run; else ""."""
        return self._source.not_finite(self._source.set_of(client), self._source.shard(client))

    def score(self, part: Slice, vector: torch.Tensor, discrete: Values) -> Score:
        """Scores a model, which is loaded already, on a slice.

        Raises:
            DataError: Its inputs are not finite.
        """
        workload, module = self.workload, self.model.module
        module.eval()
        size, seed = workload.evaluation.batch_size, self._scenario.data_seed
        # for networks that draw in evaluation too, wherever the slice is scored
        seed_torch(torch_seed(seed, f"evaluation of {part.set}", part.start, part.stop), self._device)
        batches = evaluation_batches(self._source, module, workload.task, part, size, seed)
        score = self.scorer.score(self.model.unchanged(batches, vector, discrete), part)
        if math.isfinite(score.loss) or self._scenario.hides:
            return score
        if why := self._source.not_finite(part.set, np.arange(part.start, part.stop), augment=False):
            raise DataError(why)
        return score

    def message_sizes(self, plan: PhasePlan) -> MessageSizes:
        """Returns the message sizes of a phase that trains this workload."""
        return MessageSizes.of(plan, self.model, self.workload.initial.frozen)

    def _random_model(self, seed: int) -> torch.Tensor:
        return model_as_built(self._scenario, self.workload, self._device, seed).vector
