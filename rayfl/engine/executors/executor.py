"""The interface of executors, which carry out requests of client updates, and how several of them share requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rayfl.engine.executors.client_samples import ClientSamples
from rayfl.engine.torch_generators import TorchGenerators
from rayfl.errors import RayflError, ScenarioError
from rayfl.interruption import is_of_user_code
from rayfl.local.context import ClientContext
from rayfl.models.flat import FlatModel
from rayfl.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Requested:
    """A request that a client update waits for.

    Attributes:
        client: The client.
        request: The object that its algorithm yielded; a `Request`, unless the algorithm is wrong.
        number: Number of earlier requests of its kind, training or query, in this update.
    """

    client: ClientContext
    request: Any
    number: int


class Executor(ABC):
    """Carries out requests of client updates; algorithms cannot tell which executor does.

    Attributes:
        at_least: Smallest number of requests that it takes; fewer are left to the next executor.

    Args:
        model: The resident model.
        samples: The clients' samples.
        task: The task.
        generators: PyTorch's generators, by client.
    """

    at_least: ClassVar[int] = 1

    def __init__(self, model: FlatModel, samples: ClientSamples, task: Task, generators: TorchGenerators) -> None:
        self._model, self._samples, self._task, self._generators = model, samples, task, generators

    @abstractmethod
    def accepts(self, client: ClientContext, request: Any) -> bool:
        """Whether this executor can carry out a request."""

    @abstractmethod
    def run(self, requests: Sequence[Requested]) -> list[Any]:
        """Carries out accepted requests, at most one per client.

        Args:
            requests: Requests, in the order in which the scenario groups the clients.

        Returns:
            For each request the result, which shares no memory with the resident model or other clients, or the
            exception that it ended with. An exception raised by this method itself fails all of them.
        """

    def in_turn(self, requests: Sequence[Requested], carry_out: Callable[[ClientContext, Any, int], Any]) -> list[Any]:
        """Carries out one request after the other; see `run`."""
        results: list[Any] = []
        for requested in requests:
            self._generators.enter(requested.client)
            try:
                results.append(carry_out(requested.client, requested.request, requested.number))
            except BaseException as error:  # a user's network, task or loss term may raise anything
                if not is_of_user_code(error):
                    raise
                results.append(error)
        return results


def shared_out(chain: Sequence[Executor], requests: Sequence[Requested]) -> list[tuple[Executor, list[int]]]:
    """Distributes requests: each executor takes those it accepts among the ones left by earlier executors.

    Args:
        chain: Executors, in the order in which they are tried.
        requests: The requests.

    Returns:
        Executors with the positions of their requests; requests that no executor accepts are in no list.
    """
    shares, left = [], list(range(len(requests)))
    for executor in chain:
        taken = [place for place in left if executor.accepts(requests[place].client, requests[place].request)]
        if taken and len(taken) >= executor.at_least:
            shares.append((executor, taken))
            left = [place for place in left if place not in taken]
    return shares


def not_accepted(requested: Requested) -> RayflError:
    """Returns the error for a request that no executor accepts."""
    kind = type(requested.request).__name__
    if requested.client.local.dp is None:
        return RayflError(f"its client update yielded a {kind}, not a request of rayfl.local")
    if kind == "HessianVectorProduct":
        return RayflError(
            "local.dp: its client update requests a Hessian-vector product, which cannot be clipped per sample; use a "
            "first-order algorithm"
        )
    if kind in ("Features", "Labels", "Outputs"):
        return ScenarioError(
            f"local.dp: its client update requests the {kind.lower()} of single samples, which no noise hides; use an "
            "algorithm that requests losses and gradients"
        )
    return RayflError(
        f"local.dp: its client update yielded a {kind}, which rayfl cannot clip, noise and account for; yield "
        "LocalTraining, Loss, Gradient or LossAndGradient"
    )
