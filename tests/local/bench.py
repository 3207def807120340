"""Client updates without host, server or scheduler: the executor, its resident model, and clients to run it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from rayfl.config.local import Local, Train
from rayfl.data.batches import BatchSource
from rayfl.engine.executors.one_by_one import OneByOne
from rayfl.local.context import ClientContext, ClientState, ClientStreams
from rayfl.local.requests import ClientUpdate
from tests.algorithms.scene import PLAIN, SEED, prepared

T = TypeVar("T")


class Bench:
    """What a host has to carry out requests with, for the clients of `tests.algorithms.scene`.

    changes: of the scenario's tables, such as another model.
    """

    def __init__(self, **changes: Any) -> None:
        job, self.model = prepared("fedavg", PLAIN, **changes)
        self.initial = self.model.vector.clone()
        self.source = BatchSource(job.result.store, torch.device("cpu"))
        self._executor = OneByOne(self.model, self.source, torch.device("cpu"), job.result.task)

    def client(
        self,
        number: int,
        local: Mapping[str, Any],
        lr: float = 0.1,
        round: int = 1,
        exchange: int = 0,
        train: tuple[Train, ...] = (),
    ) -> ClientContext:
        """A client in its first phase, without state and allowed none."""
        samples = self.source.num_samples(number)
        return ClientContext(
            id=number,
            num_samples=samples,
            relative_size=samples / self.source.mean_samples,
            local=Local.model_validate(local),
            lr=lr,
            streams=ClientStreams(SEED, 0, round, exchange, number),
            state=ClientState({}, frozenset()),
            model=self.model,
            random_model=lambda seed: torch.zeros_like(self.initial),
            initial_buffers=self.initial[len(self.model.params) :],
            first_model=None,
            num_values=self.model.num_params,
            train=train,
        )

    def run(self, client: ClientContext, update: Callable[[ClientContext], ClientUpdate[T]]) -> T:
        """What the client's update returns."""
        ((_, result),) = self._executor.run([client], update)
        return result
