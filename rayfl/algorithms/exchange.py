"""What passes between the server and a cohort: one question, each client's answer, the reduced answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


class Exchange:
    """One question put to the cohort.

    ask: `ask(client, *send)` runs once for every client, where its data is, and returns an Answer; a method of
        the algorithm, or any function that the hosts can import.
    send: float32 vectors, the same for every client; `ask` gets them as tensors on the client's device, which it
        must not change.
    number: which exchange of its round this is, from 0; the server counts.
    """

    number = 0

    def __init__(self, ask: Callable[..., Answer], *send: np.ndarray) -> None:
        self.ask, self.send = ask, send


class Answer:
    """What one client returns: named vectors to be averaged, with its weight in the mean, and others to be added up.

    weight: of the client in the cohort's means; 1 for all gives the plain mean. sums: vectors of which the cohort's
        plain sum is wanted, whatever the weight. asides: like sums, but for the experimenter alone: not counted as
        traffic. values: vectors of which the weighted mean is wanted.
    """

    def __init__(
        self,
        weight: float,
        *,
        sums: Mapping[str, torch.Tensor] | None = None,
        asides: Mapping[str, torch.Tensor] | None = None,
        **values: torch.Tensor,
    ) -> None:
        self.weight, self.values = weight, values
        self.sums, self.asides = dict(sums or {}), dict(asides or {})


@dataclass(frozen=True)
class Answers:
    """The answers of a whole cohort, reduced: sums that are exact, and so free of any order.

    weight: the weights' sum. totals: weighted sums; sums: plain ones, those of asides among them; all float64.
    """

    weight: float
    totals: Mapping[str, np.ndarray]
    sums: Mapping[str, np.ndarray]

    def mean(self, name: str) -> np.ndarray:
        """float64: the weighted mean of one named vector over the cohort."""
        result: np.ndarray = self.totals[name] / self.weight
        return result


@dataclass
class ServerState:
    """What an algorithm's round may read and change.

    model: float32 vector of the global model, parameters first, then buffers.
    num_params: length of the parameters' part (padding included); model[:num_params] is what is trained.
    num_clients: how many clients there are in all.
    memory: named vectors that the algorithm keeps from round to round, within its phase.
    reported: the model that is evaluated and returned, where an algorithm reports another than it trains from; also
        what the next phase starts from.
    """

    model: np.ndarray
    num_params: int
    num_clients: int
    memory: dict[str, np.ndarray]
    reported: np.ndarray | None = None

    def move(self, step: np.ndarray, buffers: np.ndarray | None = None) -> None:
        """Adds a step to the parameters and, if given, a change to the buffers; both in float64, rounded once."""
        self.model[: self.num_params] += step
        if buffers is not None:
            self.model[self.num_params :] += buffers

    def recall(self, name: str, initial: float) -> np.ndarray:
        """float64 [num_params]: what the memory holds under this name, at first `initial` everywhere."""
        return self.memory[name] if name in self.memory else np.full(self.num_params, initial)
