"""Rendered inputs: new images for every training batch, fixed images for everything else."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pytest
import torch

from rayfl.config.section import Named
from rayfl.data import batches
from rayfl.data.batch_trial import try_batches
from rayfl.data.batches import BatchSource
from rayfl.data.dataset import Dataset, Provenance, Samples, Shards
from rayfl.data.inputs import Fields, Rendered
from rayfl.data.scenario_data import data_digest
from rayfl.data.store import ShardStore
from rayfl.data.tensors import SampleReader
from rayfl.errors import DataError, ScenarioError

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Flat(Rendered):
    """Images of one colour: the row's number when fixed, a random one from 100 up when rendered."""

    numbers: np.ndarray
    shares_views: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.numbers), 4, 4, 1

    @property
    def recipe(self) -> Mapping[str, Any]:
        return {"flat": self.numbers.tolist()}

    def render(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.tile(rng.integers(100, 256, (len(rows), 1, 1, 1), np.uint8), (1, 4, 4, 1))

    def fixed(self, rows: np.ndarray) -> np.ndarray:
        return np.tile(self.numbers[rows].astype(np.uint8)[:, None, None, None], (1, 4, 4, 1))

    def take(self, rows: np.ndarray) -> Self:
        return replace(self, numbers=self.numbers[rows])


def store_of(x: Any, augment: tuple[Named, ...] = ()) -> ShardStore:
    samples = Samples(x, np.arange(len(x)))
    shards = Shards(np.arange(len(x)), np.array([0, len(x)]))
    provenance = Provenance("generated", "images of one colour")
    return ShardStore("flat", samples, samples, len(x), shards, None, None, augment, provenance)


def source_of(x: Any, augment: tuple[Named, ...] = ()) -> BatchSource:
    return BatchSource(store_of(x, augment), CPU)


def levels(x: Any) -> list[int]:
    found: list[int] = (x[:, 0, 0, 0] * 255).round().int().tolist()
    return found


def views_of(x: Rendered, **options: Any) -> list[list[list[int]]]:
    rngs = [np.random.default_rng(seed) for seed in (1, 2)]
    found = source_of(x).training_views(np.arange(9)[::-1], 4, rngs, **options)
    return [[levels(view) for view in views] for views, _ in found]


def test_each_view_of_a_batch_is_rendered_from_its_own_stream() -> None:
    streams = [np.random.default_rng(seed) for seed in (1, 2)]
    expected = [[rng.integers(100, 256, (size, 1), np.uint8)[:, 0].tolist() for rng in streams] for size in (4, 4, 1)]
    assert views_of(Flat(np.arange(9))) == expected


def test_views_may_share_one_rendering() -> None:
    class Counting(Flat):
        calls: list[int] = []  # noqa: RUF012

        def render(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            self.calls.append(len(rows))
            return super().render(rows, rng)

    found = views_of(Counting(np.arange(9), shares_views=True))
    assert all(first == second for first, second in found)
    assert Counting.calls == [4, 4, 1]


def test_without_augmentation_and_in_evaluation_a_row_has_one_image() -> None:
    x = Flat(np.arange(9))
    assert views_of(x, augment=False) == [[[8, 7, 6, 5]] * 2, [[4, 3, 2, 1]] * 2, [[0]] * 2]
    assert levels(source_of(x).test_batch(np.array([3, 1]))[0]) == [3, 1]
    assert levels(source_of(x.take(np.array([5, 2]))).test_batch(slice(0, 2))[0]) == [5, 2]


def test_batches_vary_without_augmentation() -> None:
    assert source_of(Flat(np.arange(9))).varies
    assert not source_of(Flat(np.arange(9))[:]).varies


def test_renderings_are_augmented() -> None:
    store = store_of(Flat(np.arange(9)), (Named.model_validate({"name": "crop", "padding": 4}),))
    try_batches(store)
    ((x, _),) = BatchSource(store, CPU).training_batches(np.arange(9), 9, np.random.default_rng(0))
    assert (x == 0).any()
    assert (x.amax((1, 2, 3)) * 255).round().max() >= 100


def test_no_gpu_memory_is_reserved_for_renderings() -> None:
    reader = SampleReader(Samples(Flat(np.arange(9)), np.arange(9)), CPU, budget_bytes=10**6)
    assert reader.reserved_bytes == 0


def test_the_digest_depends_on_the_recipe() -> None:
    def digest(numbers: list[int]) -> str:
        samples = Samples(Flat(np.array(numbers)), np.arange(len(numbers)))
        return data_digest(Dataset("flat", samples, samples, None, Provenance("generated", "")))

    assert digest([1, 2, 3]) == digest([1, 2, 3]) != digest([1, 2, 4])


@pytest.mark.parametrize("augment", [(), (Named(name="flip"), Named.model_validate({"name": "crop", "padding": 1}))])
def test_a_pass_in_pieces_has_the_bits_of_one_that_is_fetched_whole(
    augment: tuple[Named, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).integers(0, 256, (50, 4, 4, 3), np.uint8)
    rows = np.random.default_rng(1).permutation(50)

    def passed() -> list[torch.Tensor]:
        source = source_of(x, augment)
        return [t for batch in source.training_batches(rows, 4, np.random.default_rng(2)) for t in batch]

    whole = passed()
    fetched: list[int] = []
    fetch = SampleReader.fetch

    def counted(self: SampleReader, at: np.ndarray) -> Any:
        fetched.append(len(at))
        return fetch(self, at)

    monkeypatch.setattr(SampleReader, "fetch", counted)
    monkeypatch.setattr(batches, "_BYTES_AT_ONCE", 12 * (48 + 8))
    assert all(torch.equal(a, b) for a, b in zip(whole, passed(), strict=True))
    assert fetched == [12, 12, 12, 12, 2]


def test_views_of_stored_images_do_not_share_memory() -> None:
    source = source_of(np.zeros((4, 2, 2, 1), np.float32))
    for views, _ in source.training_views(np.arange(4), 2, [None, None]):
        first, second = views
        assert isinstance(first, torch.Tensor)
        assert isinstance(second, torch.Tensor)
        first.add_(1)
        assert not second.any()


def test_a_pass_holds_at_most_64_mib_of_stored_images_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.broadcast_to(np.zeros((1, 512, 512, 3), np.uint8), (1000, 512, 512, 3))
    fetched: list[int] = []

    def counted(self: SampleReader, at: np.ndarray) -> Any:
        fetched.append(len(at) * self.row_bytes)
        return torch.zeros(len(at), 1, 1, 3, dtype=torch.uint8), torch.zeros(len(at))

    monkeypatch.setattr(SampleReader, "fetch", counted)
    batches_seen = sum(1 for _ in source_of(x).training_batches(np.arange(1000), 8, None))
    assert batches_seen == 125
    assert 2**25 < max(fetched) <= 2**26


def test_rendered_images_raise_where_they_would_be_fixed() -> None:
    with pytest.raises(DataError, match=r"inputs by name: 'image' is rendered; rendered images must be .* only input"):
        Fields({"image": Flat(np.arange(3)), "place": np.arange(3)})
    store = replace(store_of(Flat(np.arange(3))), collate=Named(name="pad"))
    with pytest.raises(
        ScenarioError, match=r"data\.collate: images of flat are rendered and have one size; leave it out"
    ):
        try_batches(store)
