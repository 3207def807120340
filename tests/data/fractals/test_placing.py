"""Objects are placed at the drawn position, bilinearly resized, and later ones cover earlier ones."""

from typing import Any

import numpy as np
import torch

from rayfl.data.fractals.canvas import flipped, pasted, placed


class Draws:
    """Returns numbers chosen by the test."""

    def __init__(self, *draws: Any) -> None:
        self._draws = list(draws)

    def random(self, size: int | tuple[int, ...]) -> np.ndarray:
        drawn = np.array(self._draws.pop(0), float)
        assert drawn.shape == size
        return drawn


def test_flips_are_independent_and_in_order() -> None:
    image = np.arange(4.0).reshape(1, 2, 2)
    every = np.array(np.meshgrid([0.2, 0.8], [0.2, 0.8], [0.2, 0.8], indexing="ij")).reshape(3, 8).T
    found = flipped(np.repeat(image, 8, 0), Draws(every))
    for (transposes, vertical, horizontal), result in zip(every < 0.5, found, strict=True):
        expected = image[0].T if transposes else image[0]
        expected = expected[::-1] if vertical else expected
        expected = expected[:, ::-1] if horizontal else expected
        np.testing.assert_array_equal(result, expected)
    assert len({result.tobytes() for result in found}) == 8


def test_objects_are_resized_as_pytorch_resizes_and_clipped_at_the_borders() -> None:
    rng = np.random.default_rng(0)
    objects = rng.integers(0, 256, (60, 24, 24, 3), np.uint8)
    draws = rng.random((60, 3))
    found = placed(objects, 24, (0.45, 0.75), 0.25, Draws(draws))
    for image, result, (f, r, c) in zip(objects, found, draws, strict=True):
        side = int((0.45 + 0.3 * f) * 24)
        margin = side // 4
        row, column = (int(u * (24 - side + 2 * margin)) - margin for u in (r, c))
        pixels = torch.tensor(image).permute(2, 0, 1)[None].double()
        resized = torch.nn.functional.interpolate(pixels, (side, side), mode="bilinear")[0].permute(1, 2, 0).numpy()
        wide = np.zeros((72, 72, 3))
        wide[24 + row : 24 + row + side, 24 + column : 24 + column + side] = resized
        assert np.abs(result - wide[24:48, 24:48]).max() <= 0.51


def test_places_fill_their_range() -> None:
    found = placed(np.full((1000, 8, 8, 3), 255, np.uint8), 40, (0.5, 0.5), 0.25, np.random.default_rng(1))
    rows = np.asarray((found[..., 0] > 0).any(axis=2))
    height = rows.sum(1)
    assert height.min() == 15  # a quarter of 20 sticks out
    assert height.max() == 20
    assert rows[:, 0].mean() > 0.1
    assert rows[:, -1].mean() > 0.1


def test_pixels_that_are_not_black_cover_those_below() -> None:
    layers = np.zeros((3, 2, 2, 3), np.uint8)
    layers[0], layers[1, 0, 0], layers[2, 1] = 10, [0, 0, 5], 7
    canvas = np.full((2, 2, 2, 3), 1, np.uint8)
    pasted(layers, np.array([2, 1]), canvas)
    assert canvas[0].tolist() == [[[0, 0, 5], [10] * 3], [[10] * 3, [10] * 3]]
    assert canvas[1].tolist() == [[[1] * 3, [1] * 3], [[7] * 3, [7] * 3]]
