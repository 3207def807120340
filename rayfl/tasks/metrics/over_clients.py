"""A metric over clients: how well a model does on average, and how evenly; also on a common pool of test samples.

Statistics: every client has the same weight, whatever its number of samples; one whose labels leave the metric
undefined is left out. Values of a share (accuracy) are shares too, and their variances are in squared shares: 10,000
times that is percent squared. Sums are correctly rounded (math.fsum), so the order of the clients does not matter.

Common pool: a client's own test samples are often too few to tell clients apart: with 10 of them, an accuracy of 80 %
has a standard deviation of 13 %. If clients differ only in how often they have each class, the model's accuracy acc_c
on class c of the pool estimates the same with far more samples: client k's accuracy is sum_c p_k(c) acc_c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch


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


@dataclass(frozen=True)
class LocalClasses:
    """Number of samples of each class that each client has; pairs of a client and a class it lacks are left out.

    Attributes:
        client: int64 [pairs], ascending.
        label: int64 [pairs].
        number: int64 [pairs], at least 1.
        num_clients: Number of clients.
    """

    client: np.ndarray
    label: np.ndarray
    number: np.ndarray
    num_clients: int

    @staticmethod
    def count(owner: np.ndarray, label: np.ndarray, num_clients: int) -> LocalClasses:
        """Counts samples.

        Args:
            owner: integers [samples], the client of each.
            label: integers [samples], the class of each.
            num_clients: Number of clients.
        """
        classes = int(label.max(initial=0)) + 1
        pairs, number = np.unique(owner.astype(np.int64) * classes + label, return_counts=True)
        return LocalClasses(pairs // classes, pairs % classes, number, num_clients)


def hits_by_class(outputs: torch.Tensor, targets: torch.Tensor, num_classes: int) -> np.ndarray:
    """Counts correct predictions and samples by class.

    Args:
        outputs: [n, classes], logits.
        targets: [n], classes.
        num_classes: Number of classes.

    Returns:
        int64 [2, classes]: correctly classified samples, and all samples.
    """
    labels, right = targets.cpu().numpy(), (outputs.argmax(dim=1) == targets).cpu().numpy()
    return np.stack([np.bincount(labels[right], minlength=num_classes), np.bincount(labels, minlength=num_classes)])


def pooled_accuracies(hits: np.ndarray, local: LocalClasses) -> np.ndarray:
    """Computes the clients' accuracies on the pool: sum_c p_k(c) acc_c, a share.

    Classes that the pool lacks have no accuracy. They are left out, and the shares of the client's other classes are
    rescaled to add up to 1.

    Args:
        hits: int64 [2, classes], of all samples of the pool; see `hits_by_class`.
        local: The clients' own samples.

    Returns:
        float64 [clients]; NaN for a client none of whose classes is in the pool.
    """
    right, all_samples = hits
    of_class = right / np.maximum(all_samples, 1)
    weight = np.where(all_samples[local.label] > 0, local.number, 0)
    # bincount adds one pair after the other: the same bits everywhere
    total = np.bincount(local.client, weights=weight, minlength=local.num_clients)
    expected = np.bincount(local.client, weights=weight * of_class[local.label], minlength=local.num_clients)
    accuracies = np.full(local.num_clients, np.nan)
    np.divide(expected, total, out=accuracies, where=total > 0)
    return accuracies
