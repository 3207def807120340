"""Whether a tensor holds neither NaN nor infinity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def all_finite(values: torch.Tensor) -> bool:
    """Whether every value is finite: by its extremes, NaN if any value is, in a tenth of the time of `isfinite`."""
    import torch  # imported here because the server adds up answers without PyTorch

    return not values.numel() or all(map(math.isfinite, torch.stack(values.aminmax()).tolist()))  # one wait for a GPU
