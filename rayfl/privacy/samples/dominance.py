"""When one client's history costs at least as much as another's, whatever accountant counts: without computing either.

A sample that is drawn with a smaller rate is one that is drawn with the larger rate and then kept by chance, so a
Gaussian mechanism of a larger rate dominates one of a smaller rate and the same noise, at every delta; and so does a
composition of more of them (the hockey-stick divergence is jointly convex, and composition keeps its order).
"""

from __future__ import annotations

from collections import Counter

Steps = tuple[tuple[float, float, int], ...]
"""(noise multiplier, rate, steps), as Opacus' accountants keep them."""


def dominates(one: Steps, other: Steps) -> bool:
    """Whether every step of the other can be paired with a step of this one, of the same noise and at least its rate.

    Where it is false nothing follows.
    """
    spare: Counter[float] = Counter()
    tagged = [(*step, True) for step in one] + [(*step, False) for step in other]
    # down the rates, those of `one` first where both have one
    for noise, _, number, available in sorted(tagged, key=lambda step: (-step[1], not step[3])):
        spare[noise] += number if available else -number
        if spare[noise] < 0:
            return False
    return True
