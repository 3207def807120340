"""Counts equal those of a loop over points that draws each patch separately."""

import numpy as np
import pytest

from rayfl.data.fractals.canvas import graded, patch_counts
from rayfl.data.fractals.systems import orbits, sample_codes


def drawn_point_by_point(points: np.ndarray, size: int, patch: np.ndarray) -> np.ndarray:
    low, span = points.min(0), np.ptp(points, 0)
    span[span == 0] = 1
    image = np.zeros((size, size), int)
    for point in points:
        row, column = np.floor((point - low) * (size - 1) / span).astype(int)
        for i, j in np.argwhere(patch) - 1:
            if 0 <= row + i < size and 0 <= column + j < size:
                image[row + i, column + j] += 1
    return image


@pytest.mark.parametrize(("points", "size"), [(1000, 32), (2000, 21), (30, 2), (1, 5)])
def test_counts_match_a_loop_over_points(points: int, size: int) -> None:
    rng = np.random.default_rng(points)
    visited = orbits(sample_codes(8, rng), rng.random((8, points)))
    patches = rng.random((8, 3, 3)) < 0.5
    found = patch_counts(visited, size, patches)
    for chain, patch, image in zip(np.moveaxis(visited, 1, 0), patches, found, strict=True):
        np.testing.assert_array_equal(image, drawn_point_by_point(chain.reshape(-1, 2), size, patch))


def test_points_on_a_line_still_have_a_window() -> None:
    line = np.zeros((5, 1, 1, 2))
    line[:, 0, 0, 1] = np.linspace(2, 3, 5)
    found = patch_counts(line, 5, np.ones((1, 3, 3), bool))
    np.testing.assert_array_equal(found[0], [[2, 3, 3, 3, 2], [2, 3, 3, 3, 2], [0] * 5, [0] * 5, [0] * 5])


def test_an_empty_patch_leaves_a_black_image() -> None:
    counts = patch_counts(np.random.default_rng(0).random((9, 1, 1, 2)), 4, np.zeros((1, 3, 3), bool))
    grey = graded(counts)
    assert grey.dtype == np.float32
    assert not grey.any()


def test_grey_levels_are_shares_of_the_largest_count_of_the_image() -> None:
    counts = np.array([[[0, 1], [2, 4]], [[3, 3], [0, 1]]], np.int32)
    np.testing.assert_allclose(graded(counts), np.array([[[0, 0.25], [0.5, 1]], [[1, 1], [0, 1 / 3]]]), rtol=1e-7)
