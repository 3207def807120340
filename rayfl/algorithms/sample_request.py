"""What an algorithm declares of the requests that read clients' samples, so that `local.dp` can be planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SampleRequest:
    """One request of a client update that reads the client's samples; see `Algorithm.sample_requests`.

    Attributes:
        kind: `training`: a `LocalTraining`, every step of which draws a batch. `query`: a `Loss`, `Gradient` or
            `LossAndGradient`, which reads all samples of its view.
        part: The name of the part of the samples that it reads (`DataView.part`); empty for all of them.
        results: Of a query, how many of loss and gradient it returns; each is noised and charged.
        every_step: Whether it is made at every local step, not once in the client update.
        epochs: Of a training request, `LocalTraining.epochs`.
        steps: Likewise `LocalTraining.steps`.
        exchange: In which of the round's exchanges it is made, from 0, for the virtual clock.
    """

    kind: Literal["training", "query"] = "training"
    part: str = ""
    results: int = 1
    every_step: bool = False
    epochs: int | None = None
    steps: int | None = None
    exchange: int = 0
