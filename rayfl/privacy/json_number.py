"""Epsilons in the format of privacy.json."""

from __future__ import annotations

import math


def json_number(value: float) -> float | str:
    """Returns a number as JSON can represent it: infinity as the word "infinite"."""
    return value if math.isfinite(value) else "infinite"
