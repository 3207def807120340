"""Chains of many codes equal chains that are run point by point."""

import numpy as np
import pytest

from rayfl.data.fractals.systems import Codes, orbits, sample_codes


def point_by_point(codes: Codes, uniforms: np.ndarray) -> np.ndarray:
    """[n, points, 2], with matrices and plain Python."""
    chains = []
    for maps, size, draws in zip(codes.maps, codes.sizes, uniforms, strict=True):
        weights = [abs(np.linalg.det(one[:, :2])) for one in maps[:size]]
        bounds = np.cumsum(weights) / np.sum(weights)
        point = np.linalg.inv(np.eye(2) - maps[0][:, :2]) @ maps[0][:, 2]
        chain = []
        for u in draws:
            k = next((k for k in range(size - 1) if u < bounds[k]), size - 1)
            point = maps[k][:, :2] @ point + maps[k][:, 2]
            chain.append(point)
        chains.append(chain)
    return np.array(chains)


def in_order(found: np.ndarray) -> np.ndarray:
    """The result of `orbits` as [n, points, 2]."""
    steps, n, blocks, _ = found.shape
    return found.transpose(1, 2, 0, 3).reshape(n, blocks * steps, 2)


@pytest.mark.parametrize("points", [1, 7, 300, 1000])
def test_short_chains_match_a_loop_over_points(points: int) -> None:
    rng = np.random.default_rng(0)
    codes, uniforms = sample_codes(6, rng), rng.random((6, points))
    found = in_order(orbits(codes, uniforms))
    np.testing.assert_allclose(found, point_by_point(codes, uniforms), atol=1e-9)


def test_blocks_of_a_long_chain_start_where_the_previous_block_ends() -> None:
    rng = np.random.default_rng(1)
    codes, uniforms = sample_codes(6, rng), rng.random((6, 4000))
    found = in_order(orbits(codes, uniforms))
    np.testing.assert_allclose(found, point_by_point(codes, uniforms), atol=1e-9)


def test_a_chain_that_remembers_its_start_is_composed_exactly() -> None:
    rng = np.random.default_rng(2)
    turn = np.array([[np.cos(1), -np.sin(1)], [np.sin(1), np.cos(1)]]) * 0.9995
    slow = np.zeros((1, 4, 2, 3))
    slow[0, :2, :, :2], slow[0, :2, :, 2] = turn, [[0.3, 0.1], [-0.5, 0.2]]
    fast = sample_codes(3, rng)
    codes = Codes(np.concatenate([slow, fast.maps]), np.concatenate([[2], fast.sizes]))
    uniforms = rng.random((4, 3000))
    found = in_order(orbits(codes, uniforms))
    np.testing.assert_allclose(found, point_by_point(codes, uniforms), atol=1e-9)


def test_a_draw_close_to_one_selects_a_map_of_the_code() -> None:
    codes = sample_codes(50, np.random.default_rng(3))
    found = orbits(codes, np.full((50, 20), np.nextafter(1, 0)))
    last = codes.maps[np.arange(50), codes.sizes - 1]
    expected = np.einsum("nij,nj->ni", last[..., :2], found[-2, :, 0]) + last[..., 2]
    np.testing.assert_allclose(found[-1, :, 0], expected, atol=1e-12)
