"""Balanced cluster assignments by the Sinkhorn-Knopp algorithm, with the stopping rule of Orchestra's code."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def sinkhorn(scores: torch.Tensor, most: int = 100, sharpness: float = 25.0) -> torch.Tensor:
    """Spreads samples evenly over clusters.

    Rows and columns of softmax(sharpness * scores) are scaled in turn until every sample weighs 1 / n and every cluster
    1 / k. Every tenth iteration, starting with the first, sums the relative changes of the samples' scales, and stops
    below 0.01.

    From Cuturi, "Sinkhorn Distances: Lightspeed Computation of Optimal Transport", NeurIPS 2013, and the code of Lubana
    et al., "Orchestra: Unsupervised Federated Learning via Globally Consistent Clustering", ICML 2022.

    Args:
        scores: float32 [n, k], the scores of n samples for k clusters.
        most: Maximum number of iterations.
        sharpness: Factor of the scores.

    Returns:
        float32 [n, k], each sample's shares of the clusters, which add up to about 1.
    """
    import torch

    samples, clusters = scores.shape
    shares = (sharpness * scores).softmax(dim=1)
    of_samples = scores.new_full((samples,), 1 / samples)
    of_clusters = scores.new_empty(clusters)
    for iteration in range(most):
        of_clusters = 1 / clusters / (of_samples @ shares)
        scaled = 1 / samples / (shares @ of_clusters)
        change = torch.nansum((of_samples / scaled - 1).abs()) if iteration % 10 == 0 else None
        of_samples = scaled
        if change is not None and change < 0.01:
            break
    return shares * of_samples[:, None] * of_clusters * samples
