"""An iterator whose next items can be inspected before they are consumed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class PeekableIterator(Iterator[T], Generic[T]):
    """Yields the items of another iterator, in order."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._seen: deque[T] = deque()

    def __next__(self) -> T:
        return self._seen.popleft() if self._seen else next(self._items)

    def peek(self, number: int) -> list[T]:
        """Returns the next `number` items, or as many as remain, without consuming them."""
        self._seen.extend(islice(self._items, max(number - len(self._seen), 0)))
        return list(islice(self._seen, max(number, 0)))

    def drop(self, number: int) -> None:
        """Discards the next `number` items, or as many as remain."""
        for _ in islice(self, number):
            pass
