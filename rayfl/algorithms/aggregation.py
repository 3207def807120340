"""How the server makes one update of its clients': the mean, robust estimates that some clients cannot spoil, or yours.

Median and trimmed mean: Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates", ICML
2018, definitions 1 and 2.
Krum: Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", NeurIPS 2017.
Geometric median: Pillutla, Kakade and Harchaoui, "Robust Aggregation for Federated Learning", 2019 (RFA).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from rayfl.algorithms.exchange import Answers
from rayfl.algorithms.updates import Updates
from rayfl.component import Component, component_field
from rayfl.errors import RayflError, ScenarioError
from rayfl.registry import Registry

aggregations = Registry(
    "aggregation",
    {
        "mean": "rayfl.algorithms.aggregation:Mean",
        "median": "rayfl.algorithms.aggregation:Median",
        "trimmed_mean": "rayfl.algorithms.aggregation:TrimmedMean",
        "krum": "rayfl.algorithms.aggregation:Krum",
        "geometric_median": "rayfl.algorithms.aggregation:GeometricMedian",
    },
)


class Aggregation(Component, ABC):
    """Makes one update of the clients', which come one by one; see `Updates` for what this costs.

    Buffers (batch norm's statistics) are part of an update and are aggregated with it.

    Attributes:
        each: Whether the updates are needed one by one.
        takes_weights: Whether clients may be weighted by their samples; otherwise every client counts once.
    """

    each: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = False

    @abstractmethod
    def combine(self, updates: Updates) -> np.ndarray:
        """Computes the update that the server's optimizer gets.

        Args:
            updates: What the clients sent, in order of client number.

        Returns:
            float64 [n], as long as each of the updates.
        """

    def check_cohort(self, smallest: int, largest: int) -> None:
        """Checks that cohorts of these sizes make sense; called before anything starts.

        Raises:
            ScenarioError: A cohort can be too small, or the aggregation has no effect in any.
        """

    def check_round(self, clients: int) -> None:
        """Checks that a round with answers of so many clients can be aggregated.

        Raises:
            ScenarioError: It cannot.
        """

    def of(self, answers: Answers, name: str, compared: int | None = None) -> np.ndarray:
        """Aggregates one named vector of the answers.

        Args:
            answers: Of a whole cohort.
            name: Of the vector.
            compared: Over how many leading values distances are taken; by default all.

        Returns:
            float64 [n].

        Raises:
            RayflError: The cohort is too small, or a user's own class returned no vector of that length.
        """
        if not self.each:
            return answers.mean(name)
        updates = answers.one_by_one(name)
        self.check_round(len(updates))
        combined: Any = self.combine(updates if compared is None else updates.compared_on(compared))
        if not (isinstance(combined, np.ndarray) and combined.shape == (updates.length,)):
            got = f"{list(combined.shape)}" if isinstance(combined, np.ndarray) else f"a {type(combined).__name__}"
            raise RayflError(f"aggregation '{self.name}': combine() must return an array [{updates.length}], not {got}")
        return combined.astype(np.float64)


class Mean(Aggregation):
    """The mean, weighted by `weighting`: one exact sum per host, no update by itself."""

    each: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = True

    name: str = "mean"

    def combine(self, updates: Updates) -> np.ndarray:
        return updates.weighted_mean(updates.weights)


class Median(Aggregation):
    """The median of every coordinate; of an even number of clients, the mean of the two in the middle."""

    name: str = "median"

    def combine(self, updates: Updates) -> np.ndarray:
        return updates.by_coordinate(lambda values: np.median(values, axis=0, overwrite_input=True))


class TrimmedMean(Aggregation):
    """The mean of every coordinate without its largest and its smallest values.

    Attributes:
        share: beta, the share of the clients that is left out at either end; of m clients, beta m rounded down, in a
            small cohort nobody.
    """

    name: str = "trimmed_mean"
    share: Annotated[float, Field(gt=0, lt=0.5)] = 0.1

    def combine(self, updates: Updates) -> np.ndarray:
        out = self._left_out(len(updates))
        return updates.by_coordinate(lambda values: np.sort(values, axis=0)[out : len(values) - out].mean(axis=0))

    def check_cohort(self, smallest: int, largest: int) -> None:
        if not self._left_out(largest):
            raise ScenarioError(
                f"share = {self.share} of {largest} clients leaves nobody out, so it is the mean; use at least "
                f"{1 / largest:.3g}"
                if largest > 2
                else f"'trimmed_mean' needs cohorts of at least 3 clients, and this one has at most {largest}"
            )

    def _left_out(self, clients: int) -> int:
        return math.floor(self.share * clients + 1e-9)


class Krum(Aggregation):
    """The update that lies closest to its neighbours, or the mean of several such (Multi-Krum).

    An update's score is the sum of its squared distances to the n - f - 2 nearest others; the smallest score wins, of
    equal ones the client with the lower number. Distances are over all that clients send. The m (m - 1) / 2 distances
    of m clients take time in proportion to m^2 n.

    Attributes:
        byzantine: f, how many clients of a cohort may be wrong; cohorts need n > 2 f + 2 clients.
        select: m, how many updates are averaged; 1 is Krum.
    """

    name: str = "krum"
    byzantine: NonNegativeInt = 1
    select: PositiveInt = 1

    def combine(self, updates: Updates) -> np.ndarray:
        distances = np.sort(updates.pairwise_squared_distances(), axis=1)  # first comes the distance to itself, 0
        scores = distances[:, 1 : len(updates) - self.byzantine - 1].sum(axis=1)
        chosen = np.zeros(len(updates))
        chosen[np.argsort(scores, kind="stable")[: self.select]] = 1.0
        return updates.weighted_mean(chosen)

    def check_cohort(self, smallest: int, largest: int) -> None:
        needed = 2 * self.byzantine + 3
        if smallest < needed:
            raise ScenarioError(
                f"'krum' with byzantine = {self.byzantine} needs cohorts of at least {needed} clients (n > 2 f + 2), "
                f"and this one can have {smallest}"
            )
        if self.select >= smallest:
            raise ScenarioError(f"select = {self.select} of {smallest} clients is the mean of all; choose fewer")

    def check_round(self, clients: int) -> None:
        self.check_cohort(clients, clients)


class GeometricMedian(Aggregation):
    """The point whose weighted distances to the updates have the smallest sum, by the smoothed Weiszfeld algorithm.

    z <- sum_i beta_i x_i / sum_i beta_i with beta_i = p_i / max(nu, ||z - x_i||), from the weighted mean. Distances are
    over all that clients send. Every iteration passes over the updates twice.

    Attributes:
        iterations: How often; RFA finds a few to be enough.
        smoothing: nu, below which distances count as nu.
    """

    takes_weights: ClassVar[bool] = True

    name: str = "geometric_median"
    iterations: PositiveInt = 4
    smoothing: PositiveFloat = 1e-6

    def combine(self, updates: Updates) -> np.ndarray:
        point = updates.weighted_mean(updates.weights)
        for _ in range(self.iterations):
            distances = np.sqrt(updates.squared_distances(point))
            point = updates.weighted_mean(updates.weights / np.maximum(self.smoothing, distances))
        return point


AggregationField: Any = component_field(aggregations, Aggregation)
