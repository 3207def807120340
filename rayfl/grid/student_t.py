"""Student's t distribution for whole degrees of freedom, in closed form.

Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.
"""

from __future__ import annotations

import math


def within(t: float, degrees: int) -> float:
    """The probability that |T| <= t.

    Args:
        t: At least 0.
        degrees: Degrees of freedom, at least 1.
    """
    return _within(math.atan(t / math.sqrt(degrees)), degrees)


def two_sided(level: float, degrees: int) -> float:
    """The t within which |T| lies with a probability: 2.262 for 0.95 and 9 degrees of freedom.

    Args:
        level: The probability, above 0 and below 1.
        degrees: Degrees of freedom, at least 1.
    """
    low, high = 0.0, math.pi / 2
    while (middle := (low + high) / 2) not in (low, high):  # until no number lies between
        if _within(middle, degrees) < level:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
