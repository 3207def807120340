"""One client's answer to an exchange, whose update must leave alone what was sent to all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.errors import RayflError
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate

T = TypeVar("T")


def answer_of(
    exchange: Exchange, client: ClientContext, send: Sequence[torch.Tensor], shared: torch.Tensor | None = None
) -> ClientUpdate[Answer]:
    """An exchange's update of one client, which must leave alone what all clients share."""
    begun = exchange.update(client, *send)
    received = send if shared is None else (*send, shared)
    answer = begun if isinstance(begun, Answer) else (yield from _leaving_alone(received, begun))
    _check_unchanged(received)
    if not isinstance(answer, Answer):
        raise RayflError(f"its client update must return an Answer, not a {type(answer).__name__}")
    return answer


def _leaving_alone(received: Sequence[torch.Tensor], update: ClientUpdate[T]) -> ClientUpdate[T]:
    """An update that is checked before every request: later, another client of its group might be taken for it."""
    result: Any = None
    while True:
        try:
            request = update.send(result)
        except StopIteration as end:
            answer: T = end.value
            return answer
        _check_unchanged(received)
        result = yield request


def _check_unchanged(received: Sequence[torch.Tensor]) -> None:
    if any(vector._version for vector in received):
        raise RayflError("its update changed a vector that was sent to all clients; work on a copy")
