"""Points of iterated function systems, by the chaos game for many codes at a time.

On complex numbers, an affine map of the plane is v -> p v + q conj(v) + t. A long chain is cut into blocks that run in
parallel, each from the end point of the previous block. This point is known without running the whole chain, because
contracting maps forget their starting point.
"""

from __future__ import annotations

import numpy as np

from rayfl.data.fractals.codes import MOST_MAPS, Codes
from rayfl.data.fractals.jitter import largest_singular_value

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
