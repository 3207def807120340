"""How the server combines the cohort's updates: the mean, robust estimators, or your own.

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
from rayfl.config.component import Choice, Component
from rayfl.config.registry import Registry
from rayfl.errors import RayflError, ScenarioError

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
    """Combines the clients' updates into one; derive from it to write your own.

    Buffers (batch norm statistics) are part of an update and are aggregated with it. `Updates` says what keeping the
    updates one by one costs.

    Attributes:
        each: Whether the aggregation needs the updates one by one; otherwise it gets their weighted mean.
        takes_weights: Whether clients may be weighted by their sample counts; otherwise each client counts once and
            `weighting` must be `uniform`.

    Example:
        >>> import numpy as np
        >>> from rayfl.algorithms import Aggregation, FedAvg, Updates
        >>> class Midrange(Aggregation):
        ...     def combine(self, updates):
        ...         return updates.by_coordinate(lambda values: (values.min(axis=0) + values.max(axis=0)) / 2)
        >>> vectors = [np.array([1, 5], np.float32), np.array([3, 2], np.float32)]
        >>> Midrange().combine(Updates(clients=(0, 1), weights=np.ones(2), vectors=vectors))
        array([2. , 3.5])
        >>> algorithm = FedAvg(weighting="uniform", aggregation=Midrange())
    """

    each: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = False

    @abstractmethod
    def combine(self, updates: Updates) -> np.ndarray:
        """Computes the update that the server optimizer receives.

        Args:
            updates: The clients' updates, in order of client number.

        Returns:
            float64 [n], where n is the length of each update.
        """

    def check_cohort(self, smallest: int, largest: int) -> None:
        """Checks that cohorts of these sizes can be aggregated; called before the run starts.

        Args:
            smallest: Number of clients in the smallest cohort that the phase can draw.
            largest: Number of clients in the largest one.

        Raises:
            ScenarioError: A cohort may be too small, or the aggregation would have no effect on any cohort.
        """

    def check_round(self, clients: int) -> None:
        """Checks that the answers of one round can be aggregated.

        Args:
            clients: Number of clients that answered.

        Raises:
            ScenarioError: They are too few.
        """

    def of(self, answers: Answers, name: str, compared: int | None = None) -> np.ndarray:
        """Aggregates one named vector of the answers.

        Args:
            answers: The answers of a whole cohort.
            name: The vector's name.
            compared: Number of leading values over which distances are computed; by default all of them.

        Returns:
            float64 [n].

        Raises:
            RayflError: The cohort is too small, or `combine` returned something else than an array [n].
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
    """The mean, weighted according to `weighting`. Each worker process sends one exact sum, no single updates."""

    each: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = True

    name: str = "mean"

    def combine(self, updates: Updates) -> np.ndarray:
        return updates.weighted_mean(updates.weights)


class Median(Aggregation):
    """The coordinate-wise median; for an even number of clients, the mean of the two middle values."""

    name: str = "median"

    def combine(self, updates: Updates) -> np.ndarray:
        return updates.by_coordinate(lambda values: np.median(values, axis=0, overwrite_input=True))


class TrimmedMean(Aggregation):
    """The coordinate-wise mean without the largest and the smallest values.

    Attributes:
        share: beta, the share of clients trimmed at each end, above 0 and below 0.5. Of m clients, floor(beta m) are
            trimmed at each end; in a small cohort that may be none.
    """

    name: str = "trimmed_mean"
    share: Annotated[float, Field(gt=0, lt=0.5)] = 0.1

    def combine(self, updates: Updates) -> np.ndarray:
        out = self._left_out(len(updates))
        return updates.by_coordinate(lambda values: np.sort(values, axis=0)[out : len(values) - out].mean(axis=0))

    def check_cohort(self, smallest: int, largest: int) -> None:
        if not self._left_out(largest):
            raise ScenarioError(
                f"share = {self.share} trims none of {largest} clients, which is the plain mean; use at least "
                f"{1 / largest:.3g}"
                if largest > 2
                else f"'trimmed_mean' needs cohorts of at least 3 clients; this one has at most {largest}"
            )

    def _left_out(self, clients: int) -> int:
        return math.floor(self.share * clients + 1e-9)


class Krum(Aggregation):
    """Selects the update closest to its neighbours (Krum), or averages several of them (Multi-Krum).

    The score of an update is the sum of its squared distances to its n - f - 2 nearest neighbours. The smallest score
    wins; ties go to the client with the lower number. Distances cover everything that clients send. Computing all m (m
    - 1) / 2 distances of m clients takes O(m^2 n) time.

    Attributes:
        byzantine: f, the number of clients in a cohort that may be faulty. Cohorts need n > 2 f + 2 clients.
        select: m, the number of updates that are averaged; 1 is Krum. It must be smaller than the cohort.
    """

    name: str = "krum"
    byzantine: NonNegativeInt = 1
    select: PositiveInt = 1

    def combine(self, updates: Updates) -> np.ndarray:
        distances = np.sort(updates.pairwise_squared_distances(), axis=1)  # column 0 is the distance to itself
        scores = distances[:, 1 : len(updates) - self.byzantine - 1].sum(axis=1)
        chosen = np.zeros(len(updates))
        chosen[np.argsort(scores, kind="stable")[: self.select]] = 1.0
        return updates.weighted_mean(chosen)

    def check_cohort(self, smallest: int, largest: int) -> None:
        needed = 2 * self.byzantine + 3
        if smallest < needed:
            raise ScenarioError(
                f"'krum' with byzantine = {self.byzantine} needs cohorts of at least {needed} clients (n > 2 f + 2), "
                f"but this one can have {smallest}"
            )
        if self.select >= smallest:
            raise ScenarioError(f"select = {self.select} of {smallest} clients is the mean of all; select fewer")

    def check_round(self, clients: int) -> None:
        self.check_cohort(clients, clients)


class GeometricMedian(Aggregation):
    """The point with the smallest weighted sum of distances to the updates, by the smoothed Weiszfeld algorithm.

    z <- sum_i beta_i x_i / sum_i beta_i with beta_i = p_i / max(nu, ||z - x_i||), starting from the weighted mean.
    Distances cover everything that clients send. Each iteration reads all updates twice.

    Attributes:
        iterations: Number of Weiszfeld iterations; the RFA paper finds a few to be enough.
        smoothing: nu, the lower bound on the distances that appear in the denominators.
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


AggregationField: Any = Choice(aggregations, Aggregation).field
