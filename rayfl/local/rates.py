"""Learning rate schedules over the steps of a client update and over the rounds of a phase."""

from __future__ import annotations

import math

from rayfl.config.local import Rates


def rates(schedule: Rates, steps: int) -> list[float]:
    """Returns the learning rate of every step relative to the base rate; `Rates` has the formulas."""
    return [rate_at(schedule, step, steps) for step in range(1, steps + 1)]


def rate_at(schedule: Rates, step: int, steps: int) -> float:
    """Returns the rate of one of several steps, counted from 1; in (0, 1], since the last step precedes `final`."""
    warmup = schedule.warmup if isinstance(schedule.warmup, int) else round(schedule.warmup * steps)
    if step <= warmup:
        return step / (warmup + 1)
    done = (step - warmup - 1) / (steps - warmup)
    match schedule.name:
        case "constant":
            return 1.0
        case "cosine":
            return schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * done)) / 2
        case "linear":
            return 1 - (1 - schedule.final) * done
