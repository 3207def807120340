"""Weights of a client's samples in its objective, for imbalanced data."""

from __future__ import annotations

import numpy as np
import torch

from rayfl.config.component import with_defaults
from rayfl.config.local import Local
from rayfl.config.registry import Registry, call_with_options
from rayfl.config.section import Named
from rayfl.errors import ScenarioError

weightings = Registry("weighting of samples", {"inverse_frequency": "rayfl.local.sample_weights:inverse_frequency"})


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
    given = {"labels": labels.cpu().numpy()}
    try:
        found = call_with_options(weightings.resolve(chosen.name), chosen.options, given, where)
    except ScenarioError as error:
        said = str(error)
        raise ScenarioError(said if said.startswith(where) else f"{where}: {said}") from None
    weights = np.asarray(found, dtype=np.float64) if _is_numeric(found) else np.empty(0)
    if weights.shape != (len(labels),) or not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ScenarioError(
            f"{where}: '{chosen.name}' must return a weight for each of the {len(labels)} labels, finite, not negative "
            "and not all zero"
        )
    return torch.from_numpy((weights / weights.mean()).astype(np.float32)).to(labels.device)


def _is_numeric(found: object) -> bool:
    try:
        return np.asarray(found).dtype.kind in "fiu"
    except ValueError:  # lists of different lengths
        return False


def with_weighting_defaults(local: Local, where: str) -> Local:
    """Returns the options of local training with every option of the weighting written out and checked.

    Args:
        local: Options of local training.
        where: Their key path, for errors.

    Raises:
        ScenarioError: The weighting or one of its options is unknown or does not fit.
    """
    if local.sample_weights is None:
        return local
    where = f"{where}.sample_weights"
    target = weightings.resolve(local.sample_weights.name, where)
    if not callable(target):
        raise ScenarioError(f"{where}: '{local.sample_weights.name}' is not a function from labels to weights")
    return local.model_copy(update={"sample_weights": with_defaults(local.sample_weights, target, ["labels"], where)})
