"""The cached form: how the views of a batch reuse renderings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from rayfl.data.fractals.canvas import pasted
from rayfl.data.fractals.images import CachedFractalImages, load
from rayfl.data.fractals.systems import orbits

OPTIONS: dict[str, Any] = {"codes": 500, "pairs": 400, "test_images": 1, "objects": 3, "size": 16, "points": 50}


@dataclass(frozen=True)
class Numbered(CachedFractalImages):
    """Replaces renderings by numbers and images by lists of them: code + 0, + 0.5 for a second rendering, and so on."""

    def objects(self, chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        earlier = np.array([(chosen[:place] == code).sum() for place, code in enumerate(chosen)])
        return (chosen + 1 - 0.5**earlier)[:, None, None]

    def composed(self, grey: np.ndarray, objects: np.ndarray, of_objects: Any, of_images: Any) -> np.ndarray:
        return grey[:, 0, 0].reshape(len(objects), -1)


def numbered(**options: Any) -> Numbered:
    x = load("generated", 0, **OPTIONS | options, form="cached").train.x
    return Numbered(x.codes, x.chosen, x.numbers, x.drawing, x.seed)


def streams() -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in (1, 2)]


def test_an_image_has_its_own_code_and_distinct_ones_of_the_batch() -> None:
    x, rows = numbered(), np.arange(256)
    for view in x.render_views(rows, streams()):
        found = np.floor(view).astype(int)
        np.testing.assert_array_equal(found[:, 0], x.chosen[rows, 0])
        assert all(len(set(row)) == 3 for row in found)
        assert set(found.ravel()) <= set(x.chosen[rows, 0])
        assert (found[:, 1:] != x.chosen[rows, 1:]).any()


def test_views_show_the_same_codes_and_often_the_same_rendering() -> None:
    x = numbered(codes=100_000)
    first, second = x.render_views(np.arange(400), streams())
    np.testing.assert_array_equal(np.floor(first), np.floor(second))
    assert (first[::2, 0] == second[::2, 0]).all()  # rendered once
    assert 0.35 < (first[1::2, 0] == second[1::2, 0]).mean() < 0.65  # one of two renderings
    assert set(first[1::2, 0] % 1) == {0, 0.5}


def test_a_small_batch_takes_partners_from_its_images_own_lists() -> None:
    x = numbered()
    (view,) = x.render_views(np.array([7]), streams()[:1])
    assert sorted(view[0]) == sorted(x.chosen[7])
    assert view[0, 0] == x.chosen[7, 0]


def test_images_have_as_many_objects_as_their_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    x = load("generated", 0, **OPTIONS | {"objects": [1, 4]}, form="cached").train.x
    told = []

    def counted(layers: np.ndarray, objects: np.ndarray, canvas: np.ndarray) -> None:
        told.append(objects)
        pasted(layers, objects, canvas)

    monkeypatch.setattr("rayfl.data.fractals.images.pasted", counted)
    assert x.render(np.arange(60), np.random.default_rng(0)).shape == (60, 16, 16, 3)
    np.testing.assert_array_equal(np.concatenate(told), (x.chosen[:60] >= 0).sum(1))


def test_a_batch_is_a_function_of_its_rows_and_streams() -> None:
    x = load("generated", 0, **OPTIONS, form="cached").train.x
    rows = np.array([9, 3, 300, 17, 4])
    once = x.render_views(rows, streams())
    x.render_views(np.arange(50), streams())
    for view, again in zip(once, replace(x).render_views(rows, streams()), strict=True):
        np.testing.assert_array_equal(view, again)
    assert (once[0] != once[1]).any()


@pytest.mark.parametrize("form", ["exact", "cached"])
def test_the_points_of_a_batch_are_computed_a_bounded_number_at_a_time(
    form: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[int] = []

    def counted(codes: Any, uniforms: np.ndarray) -> np.ndarray:
        at_once.append(uniforms.size)
        return orbits(codes, uniforms)

    monkeypatch.setattr("rayfl.data.fractals.images.orbits", counted)
    x = load("generated", 0, **OPTIONS | {"points": 4000}, form=form).train.x
    x.render(np.arange(150), np.random.default_rng(0))
    assert len(at_once) > 1
    assert max(at_once) <= 2**19
