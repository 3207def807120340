"""Codes satisfy the constraint on their singular values."""

import numpy as np

from rayfl.data.fractals.systems import sample_codes

CODES = sample_codes(5000, np.random.default_rng(0))
SINGULAR = np.linalg.svd(CODES.maps[..., :2], compute_uv=False)


def test_every_map_contracts() -> None:
    assert SINGULAR.max() <= 1 + 1e-12


def test_the_sigma_factor_fills_its_range() -> None:
    factor = (SINGULAR @ [1, 2]).sum(1)
    for size in (2, 3, 4):
        place = 2 * factor[size == CODES.sizes] - (5 + size)
        assert -1e-9 <= place.min() < 0.01
        assert 0.99 < place.max() <= 1 + 1e-9
        assert abs(place.mean() - 0.5) < 0.03


def test_unused_maps_of_a_code_are_zero() -> None:
    used = np.arange(4) < CODES.sizes[:, None]
    assert (CODES.maps[~used] == 0).all()
    assert (CODES.maps[used] != 0).all()
