"""Declares an algorithm's requests that read clients' samples, for planning `local.dp`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SampleRequest:
    """One request of a client update that reads the client's samples; see `Algorithm.sample_requests`.

    Attributes:
        kind: `training`: a `LocalTraining`, each step of which draws a batch. `query`: a `Loss`, `Gradient` or
            `LossAndGradient`, which reads all samples of its view.
        part: Name of the part of the samples that it reads (`DataView.part`); empty for all of them.
        results: For a query, how many of loss and gradient it returns; each is noised and charged.
        every_step: Whether it is made at every local step rather than once per client update.
        epochs: For a training request, its `LocalTraining.epochs`.
        steps: For a training request, its `LocalTraining.steps`.
        exchange: The exchange of the round in which it is made, from 0; for the virtual clock.

    Example:
        >>> from rayfl.algorithms import FedAvg, SampleRequest
        >>> class GradientFirst(FedAvg):
        ...     def sample_requests(self):
        ...         return (SampleRequest("query"), SampleRequest())
        >>> [request.kind for request in GradientFirst().sample_requests()]
        ['query', 'training']
    """

    kind: Literal["training", "query"] = "training"
    part: str = ""
    results: int = 1
    every_step: bool = False
    epochs: int | None = None
    steps: int | None = None
    exchange: int = 0
