"""What every metric is: a state of a batch of test samples, how states are put together, and the value of a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
import torch

State = Mapping[str, np.ndarray]
"""What a metric keeps of some test samples."""


class Metric(ABC):
    """A figure that says how well a model does on test samples.

    Test samples are scored in fixed slices wherever a host is free, and the slices' states are put together in order:
    the value is the same on any number of hosts.

    Attributes:
        higher_is_better: Its direction; None if it has none, and then it cannot rank rounds.
        is_share: Whether values lie between 0 and 1, and are shown in percent.
        reads_features: Whether it is given the features of samples, [n, d], in the place of outputs.
    """

    higher_is_better: bool | None = True
    is_share: bool = False
    reads_features: bool = False

    @abstractmethod
    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        """The state of a batch.

        Args:
            outputs: What the network returned, in evaluation mode.
            targets: The labels of the batch.
        """

    def merged(self, states: Sequence[State]) -> State:
        """The state of several batches together, given in order; by default the sum of each part."""
        return {name: np.sum([state[name] for state in states], axis=0) for name in states[0]}

    @abstractmethod
    def value(self, state: State) -> float:
        """The value of a state."""

    def remark(self, value: float) -> str:
        """What a reader should be told of a value on all test samples; empty for most."""
        return ""
