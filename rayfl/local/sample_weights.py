"""Weights of a client's samples in its objective, for imbalanced data."""

from __future__ import annotations

import numpy as np
import torch

from rayfl.config.component import Choice
from rayfl.config.registry import Registry
from rayfl.config.section import Named
from rayfl.errors import ScenarioError

weightings = Registry("weighting of samples", {"inverse_frequency": "rayfl.local.sample_weights:inverse_frequency"})
WEIGHTINGS = Choice(weightings, given=("labels",), otherwise="is not a function from labels to weights")


def inverse_frequency(labels: np.ndarray) -> np.ndarray:
    """Gives all classes of a client equal weight: a sample of a class with n_c samples weighs 1 / n_c.

    Args:
        labels: integers [n], of one client's samples.

    Raises:
        ScenarioError: The labels are not classes.
    """
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ScenarioError(
            f"'inverse_frequency' needs one class per sample, but labels are {labels.dtype} of shape "
            f"{list(labels.shape)}; give your own function"
        )
    _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    weights: np.ndarray = 1 / counts[places]
    return weights


def sample_weights(chosen: Named, labels: torch.Tensor, where: str = "local.sample_weights") -> torch.Tensor:
    """Returns the weights of some samples of one client, with a mean of 1.

    Args:
        chosen: A registered name, or the import path of a function from labels to weights, with its options.
        labels: [n, ...], the samples' labels.
        where: The key path, for errors.

    Returns:
        float32 [n], on the labels' device.

    Raises:
        ScenarioError: The function raised an exception, or did not return n finite, non-negative weights that are not
            all zero.
    """
    try:
        returned = WEIGHTINGS.build(chosen, where, labels=labels.cpu().numpy())
    except ScenarioError as error:
        message = str(error)
        raise ScenarioError(message if message.startswith(where) else f"{where}: {message}") from None
    weights = np.asarray(returned, dtype=np.float64) if _is_numeric(returned) else np.empty(0)
    if weights.shape != (len(labels),) or not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ScenarioError(
            f"{where}: '{chosen.name}' must return a weight for each of the {len(labels)} labels, finite, not negative "
            "and not all zero"
        )
    return torch.from_numpy((weights / weights.mean()).astype(np.float32)).to(labels.device)


def _is_numeric(values: object) -> bool:
    try:
        return np.asarray(values).dtype.kind in "fiu"
    except ValueError:  # lists of different lengths
        return False
