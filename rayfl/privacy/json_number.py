"""Epsilons as privacy.json has them."""

from __future__ import annotations

import math


def json_number(value: float) -> float | str:
    """A number as JSON has it: infinity, which it lacks, as a word."""
    return value if math.isfinite(value) else "infinite"
