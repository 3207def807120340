"""The stand-in for PACS: domains have their documented look, and classes are digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayfl.data.generated import digits, handwriting
from rayfl.data.generated.digits import DOMAINS

pytestmark = pytest.mark.usefixtures("few_writers")


def test_paper_follows_the_domain_and_classes_are_digits(generated: Path) -> None:
    images, labels, domains = digits.generate_styled(generated, 0, 7, 32)
    written = handwriting.cached(generated, 0, digits.STYLED_WRITERS, 7)
    np.testing.assert_array_equal(labels, written.labels)
    assert images.shape == (len(labels), 32, 32, 3)
    assert set(labels.tolist()) == set(range(7))
    paper = {name: images[domains == place, 0, 0].astype(int) for place, name in enumerate(DOMAINS)}
    assert (paper["sketch"] == 255).all()
    assert paper["photo"].max() < 80
    assert min(paper["cartoon"].min(), paper["art_painting"].min()) > 150
    darkest = {name: images[domains == place].min(axis=(1, 2)).astype(int) for place, name in enumerate(DOMAINS)}
    assert (np.ptp(darkest["sketch"], axis=1) == 0).all(), "grey"
    assert darkest["cartoon"].mean() < 40 < darkest["art_painting"].max(axis=1).mean()
    counts = np.bincount(domains * 7 + labels, minlength=28)
    assert counts.min() > 30


def test_same_seed_same_images_other_seed_other_images(generated: Path) -> None:
    first, again, other = (digits.generate_styled(generated, seed, 7, 32) for seed in (0, 0, 1))
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert not np.array_equal(first[0][:100], other[0][:100])


def test_chosen_images_are_the_same_as_among_all(generated: Path) -> None:
    every, numbers = digits.generate_styled(generated, 0, 7, 32), []

    def choose(number: int) -> np.ndarray:
        numbers.append(number)
        return np.array([5, 2, 700])

    for some, all_of_them in zip(digits.generate_styled(generated, 0, 7, 32, choose), every, strict=True):
        np.testing.assert_array_equal(some, all_of_them[[5, 2, 700]])
    assert numbers == [len(every[1])]
