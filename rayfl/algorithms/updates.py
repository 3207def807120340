"""A cohort's answers one by one, in blocks of coordinates, for aggregations that a sum cannot express."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

BLOCK = 1 << 20
"""Number of values in a block, clients times coordinates: 8 MiB of float64."""


@dataclass(frozen=True)
class Updates:
    """One named vector from every client of a cohort, in order of client number whatever the workers and arrival times.

    `Aggregation.combine` receives it. Every update is sent whole, as float32, and stays as it arrived: a cohort of m
    clients with n values each takes 4 m n bytes on the server (with Ray, in shared memory, which may spill to disk), 4
    n bytes on a worker for each of its clients, and as much network traffic. Computations are in float64, one block of
    8 MiB at a time whatever m and n are; beyond the updates they need memory for only a few vectors of length n.

    Attributes:
        clients: The clients' numbers, ascending.
        weights: float64 [clients], the weights of their answers.
        vectors: float32 [n] for each client; read-only.
        compared: Number of leading values over which distances are computed; None for all. (rayfl sets it to what the
            protocol sends.)

    Example:
        >>> import numpy as np
        >>> from rayfl.algorithms import Updates
        >>> vectors = [np.array([0, 0], np.float32), np.array([3, 4], np.float32)]
        >>> updates = Updates(clients=(2, 5), weights=np.array([1.0, 3.0]), vectors=vectors)
        >>> updates.weighted_mean(updates.weights)
        array([2.25, 3.  ])
        >>> updates.pairwise_squared_distances()
        array([[ 0., 25.],
               [25.,  0.]])
    """

    clients: tuple[int, ...]
    weights: np.ndarray
    vectors: Sequence[np.ndarray]
    compared: int | None = None

    def __len__(self) -> int:
        """Number of clients."""
        return len(self.clients)

    @property
    def length(self) -> int:
        """Number of values of each update."""
        return len(self.vectors[0])

    def compared_on(self, values: int) -> Updates:
        """Returns the same updates, with distances computed over this many leading values."""
        return replace(self, compared=values)

    def blocks(self, stop: int | None = None) -> Iterator[tuple[slice, np.ndarray]]:
        """Iterates over blocks of coordinates.

        Args:
            stop: Number of coordinates; by default all.

        Yields:
            The range of coordinates, and the clients' values there as float64 [clients, coordinates], which you may
            change.
        """
        width, stop = max(1, BLOCK // len(self)), self.length if stop is None else stop
        for start in range(0, stop, width):
            part = slice(start, min(start + width, stop))
            yield part, np.stack([vector[part] for vector in self.vectors]).astype(np.float64)

    def by_coordinate(self, reduce: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Reduces every coordinate over the clients.

        Args:
            reduce: Function from float64 [clients, coordinates] to [coordinates].

        Returns:
            float64 [n].
        """
        result = np.empty(self.length)
        for part, values in self.blocks():
            result[part] = reduce(values)
        return result

    def weighted_mean(self, weights: np.ndarray) -> np.ndarray:
        """Returns the weighted mean of the updates, summed in client order.

        Args:
            weights: float64 [clients].

        Returns:
            float64 [n].
        """
        total = weights.sum()
        return self.by_coordinate(lambda values: (weights[:, None] * values).sum(axis=0) / total)

    def squared_distances(self, point: np.ndarray) -> np.ndarray:
        """Returns the squared distance of every update from a point.

        Args:
            point: float64 [n].

        Returns:
            float64 [clients].
        """
        result = np.zeros(len(self))
        for part, values in self.blocks(self.compared):
            result += _squares(values - point[part])
        return result

    def pairwise_squared_distances(self) -> np.ndarray:
        """Returns the squared distances between all updates: float64 [clients, clients], zero on the diagonal."""
        result = np.zeros((len(self), len(self)))
        for _, values in self.blocks(self.compared):
            for row in range(len(self) - 1):
                result[row, row + 1 :] += _squares(values[row + 1 :] - values[row])
        result += result.T
        return result


def _squares(differences: np.ndarray) -> np.ndarray:
    """Row-wise sums of squares, without a matrix product, whose bits would depend on the number of BLAS threads."""
    result: np.ndarray = np.square(differences).sum(axis=1)
    return result
