"""What passes between the server and a cohort: one message, each client's answer, the reduced answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from rayfl.algorithms.updates import Updates
from rayfl.errors import RayflError

if TYPE_CHECKING:
    import torch

    from rayfl.local.requests import ClientUpdate

Part = Literal["model", "params"] | int
"""What a message holds: a `model` (parameters and averaged buffers), the `params` alone, or a number of plain values.

Modules that a phase never trains are in nobody's message; padding of the flat vector is never counted.
"""


Messages = Sequence[tuple[tuple[Part, ...], tuple[Part, ...]]]
"""What the server sends to a client and what it gets back (`Exchange.down` and `up`), exchange by exchange."""

MORE_IF_SUMMED = "bytes more if summed"
"""Under which diagnostic hosts tell the server; see `Exchange.up_if_summed`."""

Asked = Literal["cohort", "server", "host"]
"""Who answers an exchange: every client of the cohort; the server's own samples, once; or a host, once, without any."""


@dataclass(frozen=True)
class Released:
    """What the clients of an algorithm answer with, where noise on sums has to hide each of them (`phases.N.dp`).

    Attributes:
        values: The answers' vectors that are averaged, by name, with their lengths: `model` and `params` as in `Part`.
        sums: Those that are summed.
    """

    values: Mapping[str, Part] = field(default_factory=dict)
    sums: Mapping[str, Part] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, Part]:
        """All of them, in order."""
        return {**self.values, **self.sums}


class Exchange:
    """One message to the cohort, which every client answers; or work on what the server holds.

    Attributes:
        update: `update(client, *send)` is the client's part: a generator that yields requests and returns an `Answer`;
            a method of the algorithm, or any function that hosts can import. A function that needs no request may
            return its `Answer` at once.
        send: float32 vectors, the same for every client; first the model that they train from. `update` gets them as
            tensors on the client's device and must not change them.
        down: What the protocol sends to each client.
        up: What the protocol gets back from each client.
        each: Whether the answers' `values` come one by one, in `Answers.each`, instead of as a weighted sum; `Updates`
            says what that costs. A protocol's traffic is the same. `sums` and `maxima` are reduced as ever.
        up_if_summed: What the protocol would get back if the server were to see sums alone, where that is more than
            `up`. By how many bytes it is more, for the whole cohort, is reported as `up_bytes_more_if_summed`.
        with_first_model: Whether the phase's first model goes with it, if the algorithm asks for that at all.
        at: Who answers. With "server" it is the server's samples (`data.server_share`): `update` runs once, on a host,
            as that of one more client which holds them; nothing travels. With "host" that client has no samples: it is
            work for the server that needs PyTorch.
        number: Which exchange of its round this is, from 0; the server counts.
        first_model: The phase's first global model, which the server adds if the algorithm asks for it.
        clip_norm: With `phases.N.dp`, the bound on the norm of an answer, which the server adds.
    """

    def __init__(
        self,
        update: Callable[..., ClientUpdate[Answer] | Answer],
        *send: np.ndarray,
        down: tuple[Part, ...] = ("model",),
        up: tuple[Part, ...] = ("model",),
        each: bool = False,
        up_if_summed: tuple[Part, ...] | None = None,
        at: Asked = "cohort",
        with_first_model: bool = True,
    ) -> None:
        self.update, self.send, self.down, self.up, self.each = update, send, down, up, each
        self.up_if_summed, self.at, self.with_first_model = up_if_summed, at, with_first_model
        self.number = 0
        self.first_model: np.ndarray | None = None
        self.clip_norm: float | None = None


class Answer:
    """What one client returns: named float32 vectors, which are reduced over the cohort.

    Attributes:
        weight: The client's weight in the cohort's means; 1 for all gives the plain mean.
        values: Vectors to be averaged with these weights, or wanted one by one.
        sums: Vectors to be summed, without weights.
        maxima: Vectors whose elementwise maximum is taken.
        diagnostics: Like `sums`, but for the experimenter only: not counted as the protocol's traffic.
        trained: [length of the model] float32, the model that the client trained, which the experimenter's reports and
            `phases.N.eval_model` are about; nobody sends it. Without it, that is what a value named `delta` leads to
            from the model that was sent.
        norm: With `phases.N.dp`, the norm of values and sums together before the algorithm clipped them itself, by
            which an adaptive bound is moved; None if it has not.
    """

    def __init__(
        self,
        weight: float = 1.0,
        *,
        sums: Mapping[str, torch.Tensor] | None = None,
        maxima: Mapping[str, torch.Tensor] | None = None,
        diagnostics: Mapping[str, torch.Tensor] | None = None,
        trained: torch.Tensor | None = None,
        norm: float | None = None,
        **values: torch.Tensor,
    ) -> None:
        self.weight, self.values, self.trained, self.norm = weight, values, trained, norm
        self.sums, self.maxima, self.diagnostics = dict(sums or {}), dict(maxima or {}), dict(diagnostics or {})


@dataclass(frozen=True)
class Answers:
    """The answers of a whole cohort, reduced exactly, so that their order does not matter.

    Attributes:
        count: How many clients answered; their expected number where `phases.N.dp` hides it.
        weight: The sum of their weights.
        totals: float64 weighted sums of the answers' `values`.
        sums: float64 plain sums of `sums` and `diagnostics`.
        maxima: float64 elementwise maxima of `maxima`.
        each: The answers' `values` one by one, where the exchange asks for them; `totals` is empty then.
    """

    count: float
    weight: float
    totals: Mapping[str, np.ndarray]
    sums: Mapping[str, np.ndarray]
    maxima: Mapping[str, np.ndarray] = field(default_factory=dict)
    each: Mapping[str, Updates] = field(default_factory=dict)

    def mean(self, name: str) -> np.ndarray:
        """The weighted mean of one named vector over the cohort, float64."""
        if name not in self.totals:
            raise RayflError(
                f"no client answered with '{name}'; the answers hold {', '.join(self.totals) or 'nothing'}"
                if name not in self.each
                else f"'{name}' came one by one (each=True) and was not summed; use answers.one_by_one('{name}')"
            )
        result: np.ndarray = self.totals[name] / self.weight
        return result

    def one_by_one(self, name: str) -> Updates:
        """One named vector of every client, where the exchange asked for `each`."""
        if name not in self.each:
            raise RayflError(
                f"no client answered with '{name}' by itself; that takes Exchange(..., each=True), and a vector of "
                f"that name among the values of every Answer ({', '.join(self.each) or 'there are none'})"
            )
        return self.each[name]
