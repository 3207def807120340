"""The spread of normalised outputs: zero if they have collapsed to one direction."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn.functional import normalize

from rayfl.tasks.metrics.metric import Metric, State

COLLAPSED = 0.05
"""A spread below which outputs carry almost no information about their samples."""


class Spread(Metric):
    """sqrt(d) times the mean, over d dimensions, of the standard deviation over samples of unit-length outputs.

    It is close to 1 if directions are evenly distributed, and 0 if all are the same: the self-supervised network has
    collapsed. For outputs [n, k, d], the first of k is used. Undefined for fewer than two samples.

    From Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, section 4.1.
    """

    higher_is_better = True

    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        first = outputs[:, 0] if outputs.ndim == 3 else outputs.flatten(1)
        directions = normalize(first.double())
        sums = torch.stack([directions.sum(dim=0), directions.square().sum(dim=0)])
        return {"sums": sums.cpu().numpy(), "samples": np.array(len(directions))}

    def value(self, state: State) -> float | None:
        samples = int(state["samples"])
        if samples < 2:
            return None
        mean, square = state["sums"] / samples
        deviations = np.sqrt(np.maximum(square - mean**2, 0))
        return math.sqrt(len(mean)) * float(deviations.mean())

    def remark(self, value: float) -> str:
        said = "nearly all outputs have the same direction, as in a network that has collapsed or is still untrained"
        return said if value < COLLAPSED else ""
