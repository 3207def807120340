"""The communication between the server and a cohort: a message, each client's answer, and the reduced answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from rayfl.algorithms.updates import Updates
from rayfl.errors import RayflError

if TYPE_CHECKING:
    import torch

    from rayfl.local.requests import ClientUpdate

Part = Literal["model", "params"] | int
"""One part of a message: the `model` (parameters and averaged buffers), the `params`, or a number of plain values.

You pass tuples of parts to `Exchange(down=..., up=...)`. Modules that a phase never trains and parameters that nothing
changes (`requires_grad=False`) are not in any message, and the padding of the flat vector is never counted.
"""


Messages = Sequence[tuple[tuple[Part, ...], tuple[Part, ...]]]
"""The parts that the server sends to a client and gets back (`Exchange.down` and `up`), for each exchange."""

MORE_IF_SUMMED = "bytes more if summed"
"""The diagnostic through which workers report the bytes of `Exchange.up_if_summed` to the server."""

Asked = Literal["cohort", "server", "host"]
"""Who answers an exchange: every client of the cohort; the server's samples, once; or a worker, once, without any."""


@dataclass(frozen=True)
class Released:
    """Declares the contents of clients' answers, for client-level DP (`phases.N.dp`); returned by `Algorithm.releases`.

    Attributes:
        values: The answers' vectors that are averaged: their lengths by name, as `model`, `params` or a number (see
            `Part`).
        sums: The vectors that are summed, likewise.

    Example:
        >>> from rayfl.algorithms import Released
        >>> Released({"delta": "model"}, {"control_delta": "params"}).parts
        {'delta': 'model', 'control_delta': 'params'}
    """

    values: Mapping[str, Part] = field(default_factory=dict)
    sums: Mapping[str, Part] = field(default_factory=dict)

    @property
    def parts(self) -> dict[str, Part]:
        """All vectors, in order."""
        return {**self.values, **self.sums}


class Exchange:
    """One message to the cohort, which every client answers; or work on what the server holds.

    Yield it from `Algorithm.round`, which then receives the cohort's `Answers`.

    Attributes:
        update: The client's part, called as `update(client, *send)`: a generator that yields requests and returns an
            `Answer`. It is a method of the algorithm, or any function that workers can import. A function that needs no
            request may return its `Answer` directly.
        send: float32 vectors, the same for every client; the first is the model that clients train from. `update` gets
            them as tensors on the client's device and must not change them.
        down: The parts that the protocol sends to each client.
        up: The parts that the protocol gets back from each client.
        each: Whether the answers' `values` arrive one by one, in `Answers.each`, instead of as a weighted sum.
            `Updates` says what that costs; the protocol's traffic is the same. `sums` and `maxima` are reduced in
            either case.
        up_if_summed: The parts that the protocol would get back if the server saw only sums, if that is more than `up`.
            The difference in bytes, for the whole cohort, is reported as `up_bytes_more_if_summed`.
        with_first_model: Whether to send the phase's first model along, if clients read it.
        at: Who answers. With "server", `update` runs once, on a worker, for an extra client that holds the server's
            samples (`data.server_share`); nothing is transferred. With "host", that client has no samples: use it for
            server work that needs PyTorch.
        number: Position of the exchange in its round, from 0; set by the server.
        first_model: The phase's first global model, set by the server if the algorithm reads it.
        clip_norm: The norm bound of an answer under client-level DP (`phases.N.dp`), set by the server.
        discrete: The integer and boolean buffers of the global model, by name, set by the server.

    Example:
        >>> import numpy as np
        >>> from rayfl.algorithms import Answer, Exchange
        >>> def update(client, model):
        ...     return Answer(sums={"norm": model.norm().reshape(1)})
        >>> exchange = Exchange(update, np.zeros(3, np.float32), up=(1,))
        >>> exchange.down, exchange.up, exchange.at
        (('model',), (1,), 'cohort')
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
        self.discrete: Mapping[str, np.ndarray] = {}
        self.constants: np.ndarray | None = None


class Answer:
    """The result of one client: named float32 vectors, which are reduced over the cohort.

    Attributes:
        weight: The client's weight in the cohort's means; 1 for all clients gives the plain mean.
        values: Vectors, passed as keyword arguments, that are averaged with these weights or kept one by one
            (`Exchange.each`).
        sums: Vectors that are summed without weights.
        maxima: Vectors whose elementwise maximum is taken.
        diagnostics: Like `sums`, but only for the experimenter; not counted as protocol traffic.
        trained: float32 [length of the model], the model that the client trained, for `phases.N.report` and
            `phases.N.eval_model`; it is not sent. By default it is the model that was sent plus the value named
            `delta`.
        norm: For client-level DP (`phases.N.dp`), the joint norm of values and sums before the algorithm itself clipped
            them, which moves an adaptive bound; None if it has not clipped them.

    Example:
        >>> import torch
        >>> from rayfl.algorithms import Answer
        >>> answer = Answer(weight=20, sums={"loss": torch.tensor([1.5])}, delta=torch.tensor([0.25, -0.5]))
        >>> answer.values["delta"]
        tensor([ 0.2500, -0.5000])
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


class Sums(Mapping[str, np.ndarray]):
    """Sums by name, each computed when it is read: nothing as long as the model is held longer than it is used.

    Args:
        compute: Functions that return a sum, float64 [n], in memory of its own.
    """

    def __init__(self, compute: Mapping[str, Callable[[], np.ndarray]]) -> None:
        self._compute = compute

    def __getitem__(self, name: str) -> np.ndarray:
        return self._compute[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._compute)

    def __len__(self) -> int:
        return len(self._compute)


@dataclass(frozen=True)
class Answers:
    """The answers of a cohort, reduced exactly: the result does not depend on their order.

    `Algorithm.round` receives it for every `Exchange` that it yields.

    Attributes:
        count: Number of clients that answered; the expected number if `phases.N.dp` hides it.
        weight: Sum of their weights.
        totals: float64 weighted sums of the answers' `values`.
        sums: float64 unweighted sums of the answers' `sums` and `diagnostics`.
        maxima: float64 elementwise maxima of the answers' `maxima`.
        each: The answers' `values` one by one if the exchange asks for them; `totals` is then empty.

    Example:
        >>> import numpy as np
        >>> from rayfl.algorithms import Answers
        >>> answers = Answers(count=2, weight=4.0, totals={"delta": np.array([2.0, 6.0])}, sums={})
        >>> answers.mean("delta")
        array([0.5, 1.5])
    """

    count: float
    weight: float
    totals: Mapping[str, np.ndarray]
    sums: Mapping[str, np.ndarray]
    maxima: Mapping[str, np.ndarray] = field(default_factory=dict)
    each: Mapping[str, Updates] = field(default_factory=dict)

    def mean(self, name: str) -> np.ndarray:
        """Returns the weighted mean of one named vector over the cohort.

        Args:
            name: A name among the answers' `values`.

        Returns:
            float64 [n].

        Raises:
            RayflError: No client answered with such a vector, or the exchange asked for the vectors one by one.
        """
        if name not in self.totals:
            raise RayflError(
                f"no client answered with '{name}'; the answers hold {', '.join(self.totals) or 'nothing'}"
                if name not in self.each
                else f"'{name}' came one by one (each=True) and was not summed; use answers.one_by_one('{name}')"
            )
        total = self.totals[name]
        result: np.ndarray = np.divide(total, self.weight, out=total if isinstance(self.totals, Sums) else None)
        return result

    def one_by_one(self, name: str) -> Updates:
        """Returns one named vector of every client, if the exchange asked for `each`.

        Args:
            name: A name among the answers' `values`.

        Raises:
            RayflError: There are no such vectors, or they were summed.
        """
        if name not in self.each:
            raise RayflError(
                f"there are no single vectors '{name}'; they need Exchange(..., each=True) and a value of that name in "
                f"every Answer (single vectors: {', '.join(self.each) or 'none'})"
            )
        return self.each[name]
