"""Statistics of a metric over clients: how well a model does on average, and how evenly.

Every client has the same weight, whatever its number of samples; one whose labels leave the metric undefined is left
out. Values of a share (accuracy) are shares too, and their variances are in squared shares: 10,000 times that is
percent squared. Sums are correctly rounded (math.fsum), so the order of the clients does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """1/K sum_k v_k over K clients."""
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """The population variance 1/K sum_k (v_k - mean)^2; 0 of a single client."""
    centre = mean(values)
    return math.fsum((value - centre) * (value - centre) for value in values) / len(values)


def mean_of_worst(values: Sequence[float], one_in: int, higher_is_better: bool = True) -> float:
    """The mean of the ceil(K / one_in) worst of K values: always of at least one client.

    Args:
        values: One per client.
        one_in: 10 for the worst 10 %, 5 for the worst 20 %.
        higher_is_better: Whether the lowest values are the worst; if false, the highest are.
    """
    number = -(-len(values) // one_in)
    return mean(sorted(values, reverse=not higher_is_better)[:number])


def sampling_variance(accuracies: Sequence[float], samples: Sequence[int]) -> float:
    """Returns the part of the variance over K clients that is expected from small test sets alone.

    It is (1 - 1 / K) times the mean of p (1 - p) / (n - 1).

    A client's accuracy p on n test samples has the variance P (1 - P) / n around its true accuracy P, of which p (1 -
    p) / (n - 1) is an unbiased estimate. The mean over the K clients moves with the noise too, so the population
    variance grows by (1 - 1 / K) of their mean. A client with one test sample has no such estimate and is left out of
    this mean; the result is NaN if all clients are.

    Args:
        accuracies: One per client: means of 0 or 1 per sample.
        samples: Number of test samples of each client.
    """
    known = [p * (1 - p) / (n - 1) for p, n in zip(accuracies, samples, strict=True) if n > 1]
    return (1 - 1 / len(accuracies)) * mean(known) if known else math.nan


def number_defined(values: Sequence[float | None]) -> int:
    """The number of clients for which a metric is defined, which its statistics describe."""
    return sum(value is not None for value in values)


def over_clients(
    statistic: str, values: Sequence[float | None], samples: Sequence[int], higher_is_better: bool
) -> float | None:
    """A statistic by the name that `evaluation.over_clients` gives it.

    Args:
        statistic: `mean`; `variance`; `lowest_10` or `lowest_20`, the mean of the worst 10 or 20 % of the clients;
            `variance_corrected`, the variance less `sampling_variance`, which may be negative.
        values: The metric's value on each client's samples; None where it is undefined.
        samples: Number of samples behind each value.
        higher_is_better: The metric's direction.

    Returns:
        The statistic of the clients for which the metric is defined; None if there are none, and NaN where the metric
        of a client is not finite.
    """
    defined = [(value, number) for value, number in zip(values, samples, strict=True) if value is not None]
    if not defined:
        return None
    known = [value for value, _ in defined]
    if not all(map(math.isfinite, known)):
        return math.nan
    match statistic:
        case "mean":
            return mean(known)
        case "variance":
            return variance(known)
        case "lowest_10":
            return mean_of_worst(known, 10, higher_is_better)
        case "lowest_20":
            return mean_of_worst(known, 5, higher_is_better)
        case "variance_corrected":
            return variance(known) - sampling_variance(known, [number for _, number in defined])
    raise ValueError(f"unknown statistic over clients: '{statistic}'")
