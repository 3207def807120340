"""Iterated function systems: their codes, sampled by their singular values and jittered, and their points.

Anderson and Farrell, "Improving Fractal Pre-training", WACV 2022, section 3. Before rendering, jitter scales one of the
maps of a code. Images are composed from lists of distinct codes, with one random stream per batch or per image.

Points come from the chaos game, for many codes at a time. On complex numbers, an affine map of the plane is
v -> p v + q conj(v) + t. A long chain is cut into blocks that run in parallel, each from the end point of the previous
block. This point is known without running the whole chain, because contracting maps forget their starting point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

MOST_MAPS = 4


@dataclass(frozen=True)
class Codes:
    """Iterated function systems of two to four affine maps each.

    Attributes:
        maps: float64 [n, 4, 2, 3], each map a matrix followed by its shift; unused maps of a code are zero.
        sizes: int64 [n], number of maps of each code.
    """

    maps: np.ndarray
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, rows: np.ndarray) -> Codes:
        """Some codes, in the order of `rows`."""
        return Codes(self.maps[rows], self.sizes[rows])


def sample_codes(count: int, rng: np.random.Generator) -> Codes:
    """Samples codes under the constraint of the paper: the weighted sum of singular values lies in a narrow range."""
    sizes = rng.integers(2, MOST_MAPS + 1, count)
    maps = np.zeros((count, MOST_MAPS, 2, 3))
    for size in range(2, MOST_MAPS + 1):
        chosen = np.flatnonzero(sizes == size)
        singular = _singular_values(len(chosen), size, rng)
        left, right = (_signed_rotations((len(chosen), size), rng) for _ in range(2))
        maps[chosen, :size, :, :2] = left * singular[..., None, :] @ right
        maps[chosen, :size, :, 2] = rng.uniform(-1, 1, (len(chosen), size, 2))
    return Codes(maps, sizes)


def _singular_values(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """float64 [count, size, 2], s1 >= s2, with sum(s1 + 2 s2) uniform in (5 + N, 6 + N) / 2."""
    remaining = rng.uniform((5 + size) / 2, (6 + size) / 2, count)
    required = remaining - 3 * size + 3  # what the remaining maps cannot provide
    values = np.empty((count, size, 2))
    for k in range(size - 1):
        first = rng.uniform(np.maximum(0, required / 3), np.minimum(1, remaining))
        remaining, required = remaining - first, required - first
        second = rng.uniform(np.maximum(0, required / 2), np.minimum(first, remaining / 2))
        remaining, required = remaining - 2 * second, required - 2 * second + 3
        values[:, k] = np.stack([first, second], 1)
    second = rng.uniform(np.maximum(0, (remaining - 1) / 2), remaining / 3)
    values[:, -1] = np.stack([remaining - 2 * second, second], 1)
    return values


def _signed_rotations(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    angle = rng.uniform(-np.pi, np.pi, shape)
    signs = rng.choice([-1.0, 1.0], (*shape, 2))
    cos, sin = np.cos(angle), np.sin(angle)
    rotation = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)
    return np.asarray(rotation * signs[..., None, :])


class UniformDraws(Protocol):
    """Draws uniform numbers in [0, 1), like a NumPy generator."""

    def random(self, size: tuple[int, ...], /) -> np.ndarray: ...


class StreamPerImage:
    """Draws from a separate stream per image, so an image does not depend on what else is rendered.

    Args:
        generators: One per image.
        objects: [images] integers, number of rows of a draw for each image.
    """

    def __init__(self, generators: Sequence[np.random.Generator], objects: np.ndarray) -> None:
        self._generators, self._objects = generators, objects

    def random(self, size: tuple[int, ...], /) -> np.ndarray:
        """Draws float64 `size`, whose first dimension counts all objects of all images."""
        pairs = zip(self._generators, self._objects, strict=True)
        drawn = np.concatenate([rng.random((int(rows), *size[1:])) for rng, rows in pairs])
        assert drawn.shape == size
        return drawn


LEAST_FACTOR, MOST_FACTOR = 0.8, 1.1
ATTEMPTS = 4


def jittered(codes: Codes, rng: UniformDraws) -> Codes:
    """Scales one map of each code, matrix and shift, by a factor uniform in [0.8, 1.1).

    If a singular value would exceed 1, factor and map are drawn again, up to four times in total; after that the code
    stays unchanged.
    """
    n = len(codes)
    draws = rng.random((n, ATTEMPTS, 2))
    chosen = (draws[..., 0] * codes.sizes[:, None]).astype(np.int64)
    factors = LEAST_FACTOR + (MOST_FACTOR - LEAST_FACTOR) * draws[..., 1]
    contracts = largest_singular_value(codes.maps)[np.arange(n)[:, None], chosen] * factors <= 1
    first = contracts.argmax(1)
    scaled = np.flatnonzero(contracts.any(1))
    maps = codes.maps.copy()
    maps[scaled, chosen[scaled, first[scaled]]] *= factors[scaled, first[scaled]][:, None, None]
    return Codes(maps, codes.sizes)


def largest_singular_value(maps: np.ndarray) -> np.ndarray:
    """The largest singular value of each 2 x 2 matrix of maps [..., 2, 3], in closed form."""
    (a, b), (c, d) = np.moveaxis(maps[..., :2], (-2, -1), (0, 1))
    return np.asarray((np.hypot(a + d, c - b) + np.hypot(a - d, c + b)) / 2)


def draw_distinct(lists: np.ndarray, codes: int, rng: np.random.Generator, first: int = 0) -> None:
    """Fills lists [n, most] in place with distinct codes, drawn uniformly from those not yet in the list.

    Args:
        lists: Integers; the columns before `first` are already set.
        codes: Number of codes, at least the length of a list; codes are 0 to codes - 1.
        rng: Random generator.
        first: The first column to fill.
    """
    for place in range(first, lists.shape[1]):
        drawn = rng.integers(codes - place, size=len(lists), dtype=np.int32)
        for earlier in np.sort(lists[:, :place], 1).T:
            drawn += drawn >= earlier  # skips codes already in the list
        lists[:, place] = drawn


BLOCK = 1000
"""Consecutive points of a chain; the length of a longer chain is a multiple of it."""

_MEMORIES = (250, BLOCK)
_FORGOTTEN = 1e-12


def orbits(codes: Codes, uniforms: np.ndarray) -> np.ndarray:
    """Runs one chain per code, from the fixed point of its first map.

    Args:
        codes: n codes. A map is chosen with a probability proportional to the absolute value of its determinant.
        uniforms: [n, points] in [0, 1), which select the maps; points is at most `BLOCK` or a multiple of it.

    Returns:
        float64 [steps, n, blocks, 2], the points of all chains; point i of a chain is [i % BLOCK, :, i // BLOCK].
    """
    n, points = uniforms.shape
    blocks = max(1, points // BLOCK)
    chosen = _choices(codes, uniforms).T.reshape(blocks, -1, n).transpose(1, 2, 0).astype(np.intp)
    chosen += (np.arange(n) * MOST_MAPS)[:, None]
    table = _complex_maps(codes.maps.reshape(-1, 2, 3))
    starts = np.empty((n, blocks), complex)
    starts[:, 0] = _fixed_points(codes.maps[:, 0])
    if blocks > 1:
        _set_starts(starts, chosen, table, largest_singular_value(codes.maps).ravel())
    visited = _run(chosen, table, starts)
    return np.asarray(visited.view(np.float64).reshape(*visited.shape, 2))


def _choices(codes: Codes, uniforms: np.ndarray) -> np.ndarray:
    """[n, points] uint8: the map of the code that each step applies."""
    matrices = codes.maps[..., :2]
    determinants = np.abs(matrices[..., 0, 0] * matrices[..., 1, 1] - matrices[..., 0, 1] * matrices[..., 1, 0])
    bounds = np.cumsum(determinants, 1) / determinants.sum(1, keepdims=True)
    bounds[np.arange(MOST_MAPS) >= codes.sizes[:, None] - 1] = 2  # rounding must not select an unused map
    chosen = (uniforms >= bounds[:, :1]).view(np.uint8)
    for k in range(1, MOST_MAPS - 1):
        chosen += uniforms >= bounds[:, k : k + 1]
    return np.asarray(chosen)


def _complex_maps(maps: np.ndarray) -> np.ndarray:
    """Complex [n, 3]: p, q and t of v -> p v + q conj(v) + t."""
    (a, b, e), (c, d, f) = np.moveaxis(maps, (-2, -1), (0, 1))
    return np.stack([(a + d) / 2 + 0.5j * (c - b), (a - d) / 2 + 0.5j * (c + b), e + 1j * f], 1)


def _fixed_points(maps: np.ndarray) -> np.ndarray:
    """[n] complex: the fixed point of each map."""
    points = np.linalg.solve(np.eye(2) - maps[..., :2], maps[..., 2:])[..., 0]
    return np.asarray(points[:, 0] + 1j * points[:, 1])


def _run(chosen: np.ndarray, table: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Complex [steps, ...]: the points that v [...] visits under the chosen maps [steps, ...] of a table."""
    visited = np.empty(chosen.shape, complex)
    maps, term = np.empty((*v.shape, 3), complex), np.empty_like(v)
    p, q, t = np.moveaxis(maps, -1, 0)
    for step, place in zip(chosen, visited, strict=True):
        table.take(step, 0, out=maps, mode="clip")  # any other mode buffers the output
        np.conjugate(v, out=term)
        np.multiply(q, term, out=term)
        np.add(t, term, out=place)
        np.multiply(p, v, out=term)
        np.add(place, term, out=place)
        v = place
    return visited


def _set_starts(starts: np.ndarray, chosen: np.ndarray, table: np.ndarray, norms: np.ndarray) -> None:
    """Fills in the start of every block except the first of a chain.

    The last maps of a block determine its end if the influence of their start is below rounding: the last 250 maps for
    most chains, all maps for nearly every other. If the influence is larger for any block of a chain, the maps of each
    of its blocks are composed.
    """
    unsettled = np.arange(len(starts))
    for memory in _MEMORIES:
        last = chosen[-memory:, unsettled, :-1]
        starts[unsettled, 1:] = _run(last, table, np.zeros(last.shape[1:], complex))[-1]
        unsettled = unsettled[np.take(norms, last).prod(0).max(1) > _FORGOTTEN]
        if not len(unsettled):
            return
    p, q, t = _composed(chosen[:, unsettled, :-1], table)
    for block in range(p.shape[1]):
        v = starts[unsettled, block]
        starts[unsettled, block + 1] = p[:, block] * v + q[:, block] * v.conj() + t[:, block]


def _composed(chosen: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Complex [3, n, blocks]: p, q and t of the composed maps [steps, n, blocks] of each block, pairwise."""
    maps = np.moveaxis(table[chosen], -1, 0)
    while (steps := maps.shape[1]) > 1:
        (p, q, t), (p2, q2, t2) = maps[:, 0 : steps - 1 : 2], maps[:, 1::2]
        pairs = p2 * p + q2 * q.conj(), p2 * q + q2 * p.conj(), p2 * t + q2 * t.conj() + t2
        maps = np.concatenate([np.stack(pairs), maps[:, steps - steps % 2 :]], 1)
    return np.asarray(maps[:, 0])
