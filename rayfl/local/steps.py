"""The steps of a client update: number, sizes and learning rates, the order of samples, and options drawn by client.

Numbers and rates depend only on `local` and the number of samples, so they can be planned with. The schedules of
learning rates also serve the rounds of a phase.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rayfl.config.local import Choices, Local, Rates, Uniform


def step_size(local: Local, num_samples: int) -> int:
    """Number of samples of a full step, which takes `accumulate` batches."""
    return num_samples if local.batch_size == "full" else min(local.batch_size * local.accumulate, num_samples)


def batch_size(local: Local, num_samples: int) -> int:
    """Number of samples of a full batch."""
    return num_samples if local.batch_size == "full" else min(local.batch_size, num_samples)


def steps_per_epoch(local: Local, num_samples: int) -> int:
    """Number of steps of one pass; an incomplete step counts unless dropped, and is kept if it is the only one."""
    size = step_size(local, num_samples)
    return max(1, num_samples // size) if local.drop_last else -(-num_samples // size)


def other_length(epochs: int | None, steps: int | None) -> dict[str, int | None]:
    """Returns the keys of `local` with which a client update takes this many epochs, or this many steps."""
    if epochs is not None:
        return {"epochs": epochs, "steps": None}
    return {} if steps is None else {"epochs": steps, "steps": steps}  # each step takes one pass


def update_steps(local: Local, num_samples: int) -> int:
    """Number of steps of one client update: those of its epochs, at most `local.steps`.

    Args:
        local: Options whose numbers have been drawn (`rayfl.local.steps`).
        num_samples: Number of samples to train on.
    """
    assert isinstance(local.epochs, int)
    steps = local.epochs * steps_per_epoch(local, num_samples)
    if local.steps is None:
        return steps
    assert isinstance(local.steps, int)
    return min(steps, local.steps)


def batches_of_steps(local: Local, num_samples: int) -> list[list[int]]:
    """Returns the sample counts of every batch of every step of a client update."""
    steps, per_epoch = update_steps(local, num_samples), steps_per_epoch(local, num_samples)
    whole, batch = step_size(local, num_samples), batch_size(local, num_samples)
    sizes = [min(whole, num_samples - step % per_epoch * whole) for step in range(steps)]
    return [[min(batch, size - start) for start in range(0, size, batch)] for size in sizes]


def effective_steps(rates: Sequence[float], momentum: float, pull: float = 0.0) -> float:
    """||a||_1, where SGD moves the model by lr * sum_k a_k g_k: the number of steps, if nothing else acts on it.

    With momentum rho, g_k takes part in step j >= k with weight rho^(j - k), so that a_k = sum_(j >= k) r_j rho^(j - k)
    and the sum over k is sum_j r_j (1 - rho^j) / (1 - rho); if all r_j are 1, FedNova's
    (K - rho (1 - rho^K) / (1 - rho)) / (1 - rho) (section 4.2). A pull c back to the start, lr * mu of a proximal term,
    leaves a_k = r_k prod_(j > k) (1 - c r_j), and of K steps alike (1 - (1 - c)^K) / c (section 4.2 too).

    Args:
        rates: r_j, the learning rate of each step as a share of lr.
        momentum: rho, heavy-ball as in PyTorch's SGD; 0 with a pull.
        pull: c.
    """
    steps = len(rates)
    if pull:
        left, total = 1.0, 0.0
        for rate in reversed(rates):
            total += rate * left
            left *= abs(1 - pull * rate)
        return total
    if all(rate == 1.0 for rate in rates):
        return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    return sum(rate * (1 - momentum**step) / (1 - momentum) for step, rate in enumerate(rates, start=1))


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


def drawn(local: Local, stream: Callable[[str], np.random.Generator]) -> Local:
    """Returns the options of one client in one round, with all numbers drawn.

    Args:
        local: The phase's options.
        stream: Function from a purpose to the client's generator in this round. Every option has its own stream, so
            that drawing another option does not change the first.
    """
    return _with_numbers(local, lambda key, number: _draw(number, stream(f"local {key}")))


def typical(local: Local) -> Local:
    """Returns the options with the rounded mean of every number that is drawn, for planning."""
    return _with_numbers(local, lambda _, number: round(float(np.mean(_values(number)))))


def smallest(local: Local) -> Local:
    """Returns the options with the smallest value of every number that is drawn: the shortest client update."""
    return _with_numbers(local, lambda _, number: int(_values(number).min()))


def largest(local: Local) -> Local:
    """Returns the options with the largest value of every number that is drawn: the longest client update."""
    return _with_numbers(local, lambda _, number: int(_values(number).max()))


def _with_numbers(local: Local, number_of: Callable[[str, Uniform | Choices], int]) -> Local:
    settings = {"epochs": local.epochs, "steps": local.steps}
    numbers = {key: number_of(key, value) for key, value in settings.items() if isinstance(value, Uniform | Choices)}
    return local.model_copy(update=numbers) if numbers else local


def _draw(number: Uniform | Choices, rng: np.random.Generator) -> int:
    if isinstance(number, Uniform):
        return int(rng.integers(number.uniform[0], number.uniform[1], endpoint=True))
    return number.choices[int(rng.integers(len(number.choices)))]


def _values(number: Uniform | Choices) -> np.ndarray:
    return np.array(number.uniform if isinstance(number, Uniform) else number.choices)


def passes(
    local: Local, num_samples: int, order: np.random.Generator, classes: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Yields the positions of each epoch's samples, in order; the last epoch ends with the last step.

    Args:
        local: Options whose numbers have been drawn (`rayfl.local.steps`).
        num_samples: Number of samples to train on.
        order: The training request's own generator.
        classes: integers [num_samples], for `sampling = "balanced"`.
    """
    remaining, per_epoch = update_steps(local, num_samples), steps_per_epoch(local, num_samples)
    chances = None if classes is None else balanced_chances(classes)
    while remaining:
        steps = min(remaining, per_epoch)
        yield _epoch(local, num_samples, order, chances)[: steps * step_size(local, num_samples)]
        remaining -= steps


def balanced_chances(classes: np.ndarray) -> np.ndarray:
    """Returns the probability of drawing each sample if all classes that occur are equally likely: float64 [n]."""
    _, places, counts = np.unique(classes, return_inverse=True, return_counts=True)
    chances: np.ndarray = 1 / (len(counts) * counts[places])
    return chances


def _epoch(local: Local, num_samples: int, order: np.random.Generator, chances: np.ndarray | None) -> np.ndarray:
    if chances is not None:
        return order.choice(num_samples, num_samples, p=chances)
    return order.permutation(num_samples) if local.shuffle else np.arange(num_samples)
