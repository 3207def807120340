"""Each client's accuracy on a common pool of test samples, weighted by the client's own distribution of classes.

A client's own test samples are often too few to tell clients apart: with 10 of them, an accuracy of 80 % has a standard
deviation of 13 %. If clients differ in nothing but how often they have each class, the model's accuracy on class c of
the pool, acc_c, says the same with far more samples: client k's accuracy is sum_c p_k(c) acc_c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class LocalClasses:
    """How many samples of which class each client has; pairs of a client and a class that it lacks are left out.

    Attributes:
        client: [pairs] int64, ascending.
        label: [pairs] int64.
        number: [pairs] int64, at least 1.
        num_clients: How many clients there are.
    """

    client: np.ndarray
    label: np.ndarray
    number: np.ndarray
    num_clients: int

    @staticmethod
    def count(owner: np.ndarray, label: np.ndarray, num_clients: int) -> LocalClasses:
        """Counts samples.

        Args:
            owner: [samples] integers, the client of each.
            label: [samples] integers, the class of each.
            num_clients: How many clients there are.
        """
        classes = int(label.max(initial=0)) + 1
        pairs, number = np.unique(owner.astype(np.int64) * classes + label, return_counts=True)
        return LocalClasses(pairs // classes, pairs % classes, number, num_clients)


def hits_by_class(outputs: torch.Tensor, targets: torch.Tensor, num_classes: int) -> np.ndarray:
    """Counts right predictions and samples by class.

    Args:
        outputs: [n, classes] logits.
        targets: [n] classes.
        num_classes: How many classes there are.

    Returns:
        [2, classes] int64: samples whose largest logit is that of their class, and all samples.
    """
    labels, right = targets.cpu().numpy(), (outputs.argmax(dim=1) == targets).cpu().numpy()
    return np.stack([np.bincount(labels[right], minlength=num_classes), np.bincount(labels, minlength=num_classes)])


def pooled_accuracies(hits: np.ndarray, local: LocalClasses) -> np.ndarray:
    """The clients' accuracies on the pool: sum_c p_k(c) acc_c, a share.

    Classes that the pool lacks have no accuracy. They are left out, and the shares of the client's other classes are
    scaled to add up to 1.

    Args:
        hits: [2, classes] int64, of all samples of the pool; see `hits_by_class`.
        local: The clients' own samples.

    Returns:
        [clients] float64; NaN for a client of whose classes the pool has none.
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
