"""Counts the work of code without a clock: its calls, or what it does with client numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar


def calls_of(function: Callable[[], Any]) -> int:
    """How many functions, of Python and of C, a function calls, directly or not."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls


class Counted(int):
    """A number that counts how often any such number is hashed or compared."""

    touched: ClassVar[int] = 0

    def __hash__(self) -> int:
        Counted.touched += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Counted.touched += 1
        return super().__eq__(other)


def touched_by(function: Callable[[], Any]) -> int:
    """How often a function hashes or compares `Counted` numbers."""
    Counted.touched = 0
    function()
    return Counted.touched
