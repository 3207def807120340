"""How often which mechanism was used, as a key: who has the same history has the same epsilon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar


class _Ordered(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


Used = TypeVar("Used", bound=_Ordered)


def history(spent: Mapping[Used, int]) -> tuple[tuple[Used, int], ...]:
    """The mechanisms that were used at all, in order, each with how often; hashable."""
    return tuple(sorted((mechanism, times) for mechanism, times in spent.items() if times))
