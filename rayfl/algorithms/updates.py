"""The answers of a cohort one by one, in blocks of coordinates: what a sum cannot give is computed from these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

BLOCK = 1 << 20
"""Values of a block, clients times coordinates: 8 MiB of float64."""


@dataclass(frozen=True)
class Updates:
    """One named vector of every client of a cohort, in order of client number, hence free of hosts and arrival.

    Every update is sent whole, as float32, and stays as it arrived: a cohort of m clients with n values each costs
    4 m n bytes on the server (on Ray in shared memory, which may spill to disk), 4 n bytes for each of its clients on a
    host, and as much between them. What is computed from them is float64 and takes one block at a time, 8 MiB whatever
    m and n are, so that the working memory beside the updates is a few vectors of n.

    Attributes:
        clients: Their numbers, ascending.
        weights: float64 [clients], the weights of their answers.
        vectors: float32 [n] for each client; read-only.
        compared: Distances are taken over this many leading values, by default all: those that the protocol sends.
    """

    clients: tuple[int, ...]
    weights: np.ndarray
    vectors: Sequence[np.ndarray]
    compared: int | None = None

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.clients)

    @property
    def length(self) -> int:
        """The number of values of each update."""
        return len(self.vectors[0])

    def compared_on(self, values: int) -> Updates:
        """The same updates, with distances over the first so many values."""
        return replace(self, compared=values)

    def blocks(self, stop: int | None = None) -> Iterator[tuple[slice, np.ndarray]]:
        """Goes through the coordinates.

        Args:
            stop: How many of them; by default all.

        Yields:
            A range of coordinates, and the clients' values there: float64 [clients, coordinates], free to be changed.
        """
        width, stop = max(1, BLOCK // len(self)), self.length if stop is None else stop
        for start in range(0, stop, width):
            part = slice(start, min(start + width, stop))
            yield part, np.stack([vector[part] for vector in self.vectors]).astype(np.float64)

    def by_coordinate(self, reduce: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Reduces every coordinate over the clients.

        Args:
            reduce: From float64 [clients, coordinates] to [coordinates].

        Returns:
            float64 [n].
        """
        result = np.empty(self.length)
        for part, values in self.blocks():
            result[part] = reduce(values)
        return result

    def weighted_mean(self, weights: np.ndarray) -> np.ndarray:
        """float64 [n]: the mean of the updates with the given weights, [clients] float64, added in client order."""
        total = weights.sum()
        return self.by_coordinate(lambda values: (weights[:, None] * values).sum(axis=0) / total)

    def squared_distances(self, point: np.ndarray) -> np.ndarray:
        """float64 [clients]: of every update from a point, [n] float64."""
        result = np.zeros(len(self))
        for part, values in self.blocks(self.compared):
            result += _squares(values - point[part])
        return result

    def pairwise_squared_distances(self) -> np.ndarray:
        """float64 [clients, clients], with zeros on the diagonal."""
        result = np.zeros((len(self), len(self)))
        for _, values in self.blocks(self.compared):
            for row in range(len(self) - 1):
                result[row, row + 1 :] += _squares(values[row + 1 :] - values[row])
        result += result.T
        return result


def _squares(differences: np.ndarray) -> np.ndarray:
    """Row by row; no product of matrices, whose bits depend on the number of BLAS's threads."""
    result: np.ndarray = np.square(differences).sum(axis=1)
    return result
