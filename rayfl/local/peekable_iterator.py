"""An iterator whose next items can be seen before they are taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class PeekableIterator(Iterator[T], Generic[T]):
    """Yields the items of another iterator, in its order."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._seen: deque[T] = deque()

    def __next__(self) -> T:
        return self._seen.popleft() if self._seen else next(self._items)

    def peek(self, number: int) -> list[T]:
        """The next `number` items, or as many as there are; they stay to be taken."""
        self._seen.extend(islice(self._items, max(number - len(self._seen), 0)))
        return list(islice(self._seen, max(number, 0)))

    def drop(self, number: int) -> None:
        """Takes the next `number` items, or as many as there are, and forgets them."""
        for _ in islice(self, number):
            pass
