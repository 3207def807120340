"""What carries out requests of client updates, and how several executors share them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rayfl.engine.executors.client_samples import ClientSamples
from rayfl.engine.torch_generators import TorchGenerators
from rayfl.errors import RayflError, ScenarioError
from rayfl.local.context import ClientContext
from rayfl.models.flat import FlatModel
from rayfl.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Requested:
    """What one client update waits for.

    Attributes:
        client: The client.
        request: What its algorithm yielded: a request of `rayfl.local.requests`, unless it is mistaken.
        number: How many requests of its kind, training or query, came before it in this update.
    """

    client: ClientContext
    request: Any
    number: int


class Executor(ABC):
    """Carries out requests of client updates; which one does so never shows in an algorithm.

    Attributes:
        at_least: How many requests make it worth while; fewer are left to the next executor.

    Args:
        model: The resident model.
        samples: The clients' samples.
        task: What is learned.
        generators: PyTorch's, by client.
    """

    at_least: ClassVar[int] = 1

    def __init__(self, model: FlatModel, samples: ClientSamples, task: Task, generators: TorchGenerators) -> None:
        self._model, self._samples, self._task, self._generators = model, samples, task, generators

    @abstractmethod
    def accepts(self, client: ClientContext, request: Any) -> bool:
        """Whether it can carry out a request."""

    @abstractmethod
    def run(self, requests: Sequence[Requested]) -> list[Any]:
        """Carries out requests that it accepts, at most one of every client.

        Args:
            requests: In the order in which the scenario groups the clients.

        Returns:
            For each the result, of which no part is the resident model's or another client's, or the exception that it
            ended with. What this raises itself is the failure of them all.
        """

    def in_turn(self, requests: Sequence[Requested], carry_out: Callable[[ClientContext, Any, int], Any]) -> list[Any]:
        """Carries out one request after the other; see `run`."""
        results: list[Any] = []
        for requested in requests:
            self._generators.enter(requested.client)
            try:
                results.append(carry_out(requested.client, requested.request, requested.number))
            except (Exception, SystemExit) as error:  # a user's network, task or loss term may raise anything
                results.append(error)
        return results


def shared_out(chain: Sequence[Executor], requests: Sequence[Requested]) -> list[tuple[Executor, list[int]]]:
    """Who carries out which requests: each executor takes what it accepts of what those before it left.

    Args:
        chain: Executors, in the order in which they are asked.
        requests: What to carry out.

    Returns:
        Executors with the places of their requests. What none accepts is in no list.
    """
    shares, left = [], list(range(len(requests)))
    for executor in chain:
        taken = [place for place in left if executor.accepts(requests[place].client, requests[place].request)]
        if taken and len(taken) >= executor.at_least:
            shares.append((executor, taken))
            left = [place for place in left if place not in taken]
    return shares


def not_accepted(requested: Requested) -> RayflError:
    """Why no executor carries out a request."""
    kind = type(requested.request).__name__
    if requested.client.local.dp is None:
        return RayflError(f"its client update yielded a {kind}, not a request of rayfl.local.requests")
    if kind == "HessianVectorProduct":
        return RayflError(
            "local.dp: its client update asks for a Hessian-vector product, which is not clipped sample by sample; use "
            "an algorithm of first order"
        )
    if kind in ("Features", "Labels", "Outputs"):
        return ScenarioError(
            f"local.dp: its client update asks for the {kind.lower()} of single samples, which no noise hides; use an "
            "algorithm that asks for losses and gradients"
        )
    return RayflError(
        f"local.dp: its client update yielded a {kind}, which nothing clips, noises and charges; yield LocalTraining, "
        "Loss, Gradient or LossAndGradient"
    )
