from __future__ import annotations

from itertools import islice

from rayfl.local.sgd import PeekableIterator


def test_items_come_in_order_whatever_was_seen_of_them_before() -> None:
    items = PeekableIterator(iter(range(6)))
    assert items.peek(0) == items.peek(-1) == []
    assert next(items) == 0
    assert items.peek(2) == [1, 2]
    assert items.peek(3) == [1, 2, 3]
    assert items.peek(1) == [1]
    assert list(islice(items, 2)) == [1, 2]
    assert items.peek(9) == [3, 4, 5]
    assert list(items) == [3, 4, 5]
    assert items.peek(1) == []
