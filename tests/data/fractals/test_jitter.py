"""Jitter scales one map of a code and keeps every map a contraction."""

import numpy as np

from rayfl.data.fractals.systems import Codes, jittered, largest_singular_value, sample_codes

CODES = sample_codes(3000, np.random.default_rng(0))


def test_the_largest_singular_value_matches_numpy() -> None:
    expected = np.linalg.svd(CODES.maps[..., :2], compute_uv=False)[..., 0]
    np.testing.assert_allclose(largest_singular_value(CODES.maps), expected, atol=1e-12)


def test_one_map_is_scaled_by_a_factor_in_its_range() -> None:
    after = jittered(CODES, np.random.default_rng(1))
    used = np.arange(4) < CODES.sizes[:, None]
    factor = np.where(used, after.maps[..., 0, 2] / np.where(used, CODES.maps[..., 0, 2], 1), 1)
    changed = np.abs(factor - 1) > 1e-12
    assert changed.sum(1).max() == 1
    assert changed.any(1).mean() > 0.95
    assert 0.8 <= factor[changed].min() < 0.81
    assert 1.05 < factor[changed].max() <= 1.1
    np.testing.assert_allclose(after.maps, CODES.maps * factor[..., None, None], atol=1e-12)
    assert largest_singular_value(after.maps).max() <= 1


def test_a_code_that_no_attempt_can_scale_stays_unchanged() -> None:
    class LargestFactor:
        def random(self, size: int | tuple[int, ...]) -> np.ndarray:
            return np.full(size, 0.999)

    expanding = Codes(np.tile([[1.0, 0, 0.5], [0, 0.5, 0.5]], (1, 4, 1, 1)), np.array([4]))
    np.testing.assert_array_equal(jittered(expanding, LargestFactor()).maps, expanding.maps)
