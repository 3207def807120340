"""The stand-in for photographs: colours of ink and paper match the classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayfl.data.generated import digits, handwriting
from rayfl.data.generated.digits import INKS

pytestmark = pytest.mark.usefixtures("few_writers")


@pytest.mark.parametrize(("classes", "side"), [(10, 32), (100, 32), (200, 64)])
def test_labels_are_digit_ink_and_paper(generated: Path, classes: int, side: int) -> None:
    train, test = digits.generate_coloured(generated, 0, classes, side)  # type: ignore[arg-type]
    written = handwriting.cached(generated, 0, digits.COLOURED_WRITERS, 10)
    assert train.x.shape == (int((~written.is_test).sum()), side, side, 3)
    assert len(test) == int(written.is_test.sum())
    assert set(train.y.tolist()) == set(range(classes))
    np.testing.assert_array_equal(train.y // (classes // 10), written.labels[~written.is_test])
    train = train.take(np.arange(1000))
    x = np.asarray(train.x)
    paper = x[:, 0, 0].astype(int)
    if classes == 200:
        np.testing.assert_array_equal(train.y % 2, (paper.mean(1) < 128).astype(int))
    if classes >= 100:
        ink = train.y // (classes // 100) % 10
        flat = x.reshape(len(x), -1, 3).astype(int)
        farthest = np.abs(flat - paper[:, None]).sum(2).argmax(1)
        seen = flat[np.arange(len(x)), farthest]
        nearest = np.abs(seen[:, None] - INKS).sum(2).argmin(1)
        # Thin strokes mix with the paper, so the darkest pixel alone does not always identify the ink.
        assert (nearest == ink).mean() > 0.7


def test_same_seed_same_images_other_seed_other_images(generated: Path) -> None:
    first, again, other = (digits.generate_coloured(generated, seed, 100, 32)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(np.asarray(first.x), np.asarray(again.x))
    np.testing.assert_array_equal(first.y, again.y)
    assert not np.array_equal(np.asarray(first.x)[:100], np.asarray(other.x)[:100])
