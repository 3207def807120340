"""Runs one client's update for an exchange, and checks that it leaves the vectors shared by all clients unchanged."""

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
    """Runs an exchange's update of one client, and checks that it does not change what all clients share.

    Raises:
        RayflError: It changed a shared vector, or returned something else than an `Answer`.
    """
    begun = exchange.update(client, *send)
    received = send if shared is None else (*send, shared)
    answer = begun if isinstance(begun, Answer) else (yield from _checked_at_requests(received, begun))
    _check_unchanged(received)
    if not isinstance(answer, Answer):
        raise RayflError(f"its client update must return an Answer, not a {type(answer).__name__}")
    return answer


def _checked_at_requests(received: Sequence[torch.Tensor], update: ClientUpdate[T]) -> ClientUpdate[T]:
    """Also checks before every request; checked later, another client of the group could be blamed."""
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
        raise RayflError("its update modified a vector that was sent to all clients; work on a copy")
