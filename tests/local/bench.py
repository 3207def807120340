"""Client updates without host, server or scheduler: the executor, its resident model, and clients to run it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import torch

from rayfl.config.local import Local, Train
from rayfl.data.batches import BatchSource
from rayfl.engine.client_updates import ClientUpdates, UpdateErrors
from rayfl.engine.device import TorchGenerators
from rayfl.engine.executors.executor import ClientSamples, Executor
from rayfl.engine.executors.one_by_one import OneByOne
from rayfl.local.context import ClientContext, ClientFacts, ClientNetwork, ClientStreams, UpdatePlan
from rayfl.local.requests import ClientUpdate
from tests.algorithms.scene import PLAIN, SEED, prepared

T = TypeVar("T")


class Bench:
    """What a host has to carry out requests with, for the clients of `tests.algorithms.scene`.

    executors: who carries requests out, in the order in which they are asked.
    changes: of the scenario's tables, such as another model.
    """

    def __init__(self, *executors: Callable[..., Executor], **changes: Any) -> None:
        job, self.model = prepared("fedavg", PLAIN.with_local(batch_size="full"), **changes)
        self.initial = self.model.vector.clone()
        self.source = BatchSource(job.result.store, torch.device("cpu"))
        self.task = job.result.task
        samples = ClientSamples(self.source, torch.device("cpu"), self.task)
        generators = TorchGenerators(torch.device("cpu"))
        chain = [kind(self.model, samples, self.task, generators) for kind in executors or (OneByOne,)]
        self._updates = ClientUpdates(chain, generators)
        buffers = self.initial[len(self.model.params) :]
        self._network = ClientNetwork(self.model, buffers, lambda seed: torch.zeros_like(self.initial))

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
            UpdatePlan(Local.model_validate(local), lr, train),
            ClientFacts(
                number, samples, samples / self.source.mean_samples, ClientStreams(SEED, 0, round, exchange, number)
            ),
            self._network,
        )

    def run(self, client: ClientContext, update: Callable[[ClientContext], ClientUpdate[T]]) -> T:
        """What the client's update returns."""
        (result,) = self.run_together([client], update)
        return result

    def run_together(
        self, group: Sequence[ClientContext], update: Callable[[ClientContext], ClientUpdate[T]]
    ) -> list[T]:
        """What the updates of a group of clients return."""
        return self._updates.run(group, update, UpdateErrors(0, "bench", 1))


@cache
def shared_bench() -> Bench:
    """The usual bench, made once: every request says which values it starts from."""
    return Bench()
