"""Each client's accuracy on a common pool of test samples, weighted by the client's own class distribution.

A client's own test samples are often too few to tell clients apart: with 10 of them, an accuracy of 80 % has a standard
deviation of 13 %. If clients differ only in how often they have each class, the model's accuracy acc_c on class c of
the pool estimates the same with far more samples: client k's accuracy is sum_c p_k(c) acc_c.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


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
