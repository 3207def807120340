"""The base class of metrics: the state of a batch of test samples, merging of states, and the value of a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch

from rayfl.models.attributes import Values, values_of

State = Mapping[str, np.ndarray]
"""The statistics that a metric keeps of some test samples."""


Made = TypeVar("Made", bound=Callable[..., object])


def higher_is(better: bool) -> Callable[[Made], Made]:
    """Marks a function that makes a metric with its direction, which classes have as an attribute."""

    def marked(make: Made) -> Made:
        make.__dict__["higher_is_better"] = better
        return make

    return marked


class Metric(ABC):
    """Measures how well a model does on test samples; derive from it to write your own.

    Test samples are evaluated in fixed slices on whichever worker is free, and the slices' states are merged in order:
    the value is the same for any number of workers.

    Attributes:
        higher_is_better: Whether larger values are better. A metric that does not say so (None) cannot rank rounds.
        is_share: Whether values are between 0 and 1 and are shown in percent.
        reads_features: Whether it receives the features of samples, [n, d], instead of outputs.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from rayfl.tasks import Metric
        >>> class ErrorRate(Metric):
        ...     higher_is_better = False
        ...     is_share = True
        ...
        ...     def state(self, outputs, targets):
        ...         wrong = (outputs.argmax(dim=1) != targets).sum()
        ...         return {"wrong": np.array(int(wrong)), "samples": np.array(len(targets))}
        ...
        ...     def value(self, state):
        ...         return float(state["wrong"] / state["samples"])
        >>> metric = ErrorRate()
        >>> states = [metric.state(torch.eye(2), torch.tensor([0, label])) for label in (0, 1)]
        >>> metric.value(metric.merged(states))
        0.25
    """

    higher_is_better: bool | None = None
    is_share: bool = False
    reads_features: bool = False

    @abstractmethod
    def state(self, outputs: torch.Tensor, targets: torch.Tensor) -> State:
        """Returns the state of a batch.

        Args:
            outputs: The network's outputs, in evaluation mode.
            targets: The labels of the batch.
        """

    def merged(self, states: Sequence[State]) -> State:
        """Merges the states of several batches, given in order; by default by summing each entry."""
        return {name: np.sum([state[name] for state in states], axis=0) for name in states[0]}

    @abstractmethod
    def value(self, state: State) -> float | None:
        """Returns the value of a state.

        Return None where the labels leave the metric undefined, whatever a model predicts: of a single class, no ROC
        curve can be drawn. Statistics over clients then leave the client out. A NaN is not left out.
        """

    def parts(self, state: State) -> Mapping[str, float | None]:
        """Returns further values of a state by name, such as the score of every class; none for most metrics.

        They are reported for sets of samples, as columns `<set>_<label>/<name>`, and not for single clients.
        """
        return {}

    def undeclared(self) -> Values:
        """Returns what its attributes hold outside the state, which must not depend on batches."""
        return values_of((), metric=self)

    def remark(self, value: float) -> str:
        """Returns a remark on a value over all test samples for the reader; empty for most metrics."""
        return ""
