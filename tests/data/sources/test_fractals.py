"""Fractal images on demand: fixed for evaluation, new renderings for training, distinct codes."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rayfl.config.data import Data
from rayfl.data.batches import BatchSource
from rayfl.data.fractals.images import chosen_codes
from rayfl.data.store import ShardStore, build_store
from rayfl.errors import ScenarioError

OPTIONS = {"codes": 20, "pairs": 40, "test_images": 12, "size": 16, "points": 200}


def store_of(seed: int = 0, clients: int = 4, **options: Any) -> ShardStore:
    config = Data.model_validate({"name": "fractals", "clients": clients, "options": OPTIONS | options})
    return build_store(config, seed, Path("no-data-here"), Path("no-cache-here"))


def test_an_image_does_not_depend_on_others_rendered_with_it() -> None:
    x = store_of(objects=[2, 4], background="diamond_square").test.x
    every = x[:]
    assert len({image.tobytes() for image in every}) == 12
    np.testing.assert_array_equal(x[np.array([7, 3])], every[[7, 3]])
    np.testing.assert_array_equal(x.take(np.array([9, 5]))[1:], every[[5]])


def test_rendering_in_blocks_does_not_change_images(monkeypatch: pytest.MonkeyPatch) -> None:
    x = store_of().train.x
    whole = x[:10]
    monkeypatch.setattr("rayfl.data.fractals.images._POINTS_AT_ONCE", 800)
    np.testing.assert_array_equal(x[:10], whole)


def test_views_differ_and_may_share_a_rendering() -> None:
    for views, same in (("rendered", False), ("shared", True)):
        source = BatchSource(store_of(views=views), torch.device("cpu"))
        rngs = [np.random.default_rng(seed) for seed in (0, 1)]
        (((first, second), _),) = source.training_views(np.arange(8), 8, rngs)
        assert isinstance(first, torch.Tensor)
        assert isinstance(second, torch.Tensor)
        assert torch.equal(first, second) == same


def test_labels_are_the_codes_or_multi_hot() -> None:
    codes, hot = store_of(objects=[1, 3]).train.y, store_of(objects=[1, 3], labels="multi_hot").train.y
    assert codes.dtype == np.int32
    assert (codes.shape, hot.shape) == ((40, 3), (40, 20))
    for listed, row in zip(codes, hot, strict=True):
        assert sorted(listed[listed >= 0]) == np.flatnonzero(row).tolist()
    assert set((codes >= 0).sum(1)) == {1, 2, 3}
    np.testing.assert_array_equal(store_of(form="cached").train.y, store_of().train.y[:, :1])


def test_chosen_codes_are_distinct_and_every_list_is_as_likely() -> None:
    found = chosen_codes(24_000, 4, 3, 3, np.random.default_rng(0))
    counts = {which: (found == which).all(1).sum() for which in itertools.permutations(range(4), 3)}
    assert sum(counts.values()) == 24_000
    assert 850 < min(counts.values()) <= max(counts.values()) < 1150


def test_the_digest_follows_the_seed_and_the_options() -> None:
    digests = [store.provenance.digest for store in (store_of(), store_of(), store_of(1), store_of(points=300))]
    digests.append(store_of(form="cached").provenance.digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codes": 1}, "data.options.codes: 1 codes are too few for 2 distinct objects; give at least 2"),
        ({"points": 1500}, "data.options.points: above 1000, must be a multiple of 1000"),
        ({"objects": [3, 2]}, "data.options.objects: from 3 to 2; give the smaller number first"),
        ({"sizes": [0.7, 0.5]}, "data.options.sizes: from 0.7 to 0.5; give the smaller share first"),
        ({"form": "cached", "labels": "multi_hot"}, "data.options.labels: 'multi_hot' lists all codes of an image"),
        (
            {"codes": 20_000, "labels": "multi_hot"},
            "data.options.labels: 'multi_hot' is limited to 10000 codes, not 20000",
        ),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as caught:
        store_of(**options)
    assert "\n" not in str(caught.value)
