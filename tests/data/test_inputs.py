"""Inputs by name and of different lengths: stored once, split into batches, and collated by a user function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

import rayfl
from rayfl.config.data import Data
from rayfl.data.batches import BatchSource
from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.data.inputs import Fields, Ragged, kind_of
from rayfl.data.store import ShardStore, build_store
from rayfl.data.tensors import SampleReader, pad
from rayfl.errors import DataError, RayflError, ScenarioError

HERE = "tests.data.test_inputs"
CPU = torch.device("cpu")
RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(1, 9, 60)
TEXTS = [RNG.integers(1, 30, length) for length in LENGTHS]
Y = np.array([int(text.sum()) % 2 for text in TEXTS])
TOKENS = np.stack([np.pad(text, (0, 8 - len(text))) for text in TEXTS])
MASK = TOKENS > 0


def by_name() -> Any:
    x = {"input_ids": TOKENS, "mask": MASK}
    return x, Y, x, Y


def ragged() -> Any:
    return TEXTS, Y, TEXTS, Y


def ragged_by_name() -> Any:
    x = {"input_ids": TEXTS, "length": LENGTHS.astype(np.float64)}
    return x, Y, x, Y


def tokens_and_mask(samples: list[Any], value: int = 0) -> dict[str, torch.Tensor]:
    """A user-defined collation, for either kind of ragged inputs."""
    texts = [sample["input_ids"] if isinstance(sample, dict) else sample for sample in samples]
    input_ids = pad(texts, value)
    return {"input_ids": input_ids, "mask": input_ids != value}


class MeanOfWords(nn.Module):
    """Takes its inputs as keyword arguments; padding makes no difference."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 8)
        self.read_out = nn.Linear(8, num_classes)

    def forward(self, *, input_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        weights = mask.float()[..., None]
        logits: torch.Tensor = self.read_out((self.words(input_ids) * weights).sum(1) / weights.sum(1))
        return logits


def store(name: str, **data: Any) -> ShardStore:
    return build_store(Data.model_validate({"name": f"{HERE}:{name}", "clients": 4, **data}), 0, Path(), Path())


def in_place(samples: list[Any]) -> dict[str, torch.Tensor]:
    """A collation that writes to its inputs."""
    for sample in samples:
        sample["input_ids"] += 1
    return {name: torch.stack([torch.as_tensor(sample[name]) for sample in samples]) for name in samples[0]}


def test_a_collation_that_writes_to_its_inputs_leaves_the_data_as_it_was() -> None:
    reader = SampleReader(store("by_name").test, CPU, collate=in_place)
    (first, _), (again, _), (chosen, _) = (reader.fetch(rows) for rows in (slice(2, 5), slice(2, 5), np.arange(2, 5)))
    for name, values in first.items():
        assert torch.equal(values, again[name])
        assert torch.equal(values, chosen[name])


def test_inputs_by_name_come_out_as_a_dictionary_of_tensors() -> None:
    source = BatchSource(store("by_name"), CPU)
    rows = np.array([7, 3, 11, 0, 2])
    batches = [*source.training_batches(rows, 2, np.random.default_rng(0)), source.test_batch(rows)]
    for (x, y), part in zip(batches, (rows[:2], rows[2:4], rows[4:], rows), strict=True):
        assert list(x) == ["input_ids", "mask"]
        assert (x["input_ids"].dtype, x["mask"].dtype) == (torch.int64, torch.bool)
        assert x["input_ids"].tolist() == TOKENS[part].tolist()
        assert x["mask"].tolist() == MASK[part].tolist()
        assert y.tolist() == Y[part].tolist()


@pytest.mark.parametrize("name", ["ragged", "ragged_by_name"])
@pytest.mark.parametrize("collate", [f"{HERE}:tokens_and_mask", {"name": f"{HERE}:tokens_and_mask", "value": 29}])
def test_inputs_of_different_lengths_are_collated_batch_by_batch(name: str, collate: Any) -> None:
    source = BatchSource(store(name, collate=collate), CPU)
    rows = np.array([7, 3, 11, 0, 2])
    batches = [*source.training_batches(rows, 2, np.random.default_rng(0)), source.test_batch(rows)]
    filled = collate["value"] if isinstance(collate, dict) else 0
    for (x, y), part in zip(batches, (rows[:2], rows[2:4], rows[4:], rows), strict=True):
        longest = LENGTHS[part].max()
        expected = np.where(MASK[part], TOKENS[part], filled)[:, :longest]
        assert x["input_ids"].tolist() == expected.tolist()
        assert x["mask"].tolist() == (expected != filled).tolist()
        assert y.tolist() == Y[part].tolist()


def test_pad_extends_inputs_to_the_longest_of_a_batch() -> None:
    source = BatchSource(store("ragged", collate="pad"), CPU)
    x, _ = source.test_batch(np.array([5, 1]))
    assert x.tolist() == TOKENS[[5, 1], : max(LENGTHS[5], LENGTHS[1])].tolist()
    assert x.dtype == torch.int64
    vectors = [np.ones((1, 2), np.float32), np.ones((3, 2), np.float32)]
    assert pad(vectors, -1)[0].tolist() == [[1, 1], [-1, -1], [-1, -1]]


def test_pad_wraps_and_cuts_no_value() -> None:
    tokens = [np.array([1, 2], np.uint8), np.array([3], np.uint8)]
    for value, dtype in ((255, torch.uint8), (-1, torch.int64), (256, torch.int64)):
        padded = pad(tokens, value)
        assert (padded.tolist(), padded.dtype) == ([[1, 2], [3, value]], dtype)
    with pytest.raises(ScenarioError, match=r"data\.collate\.value: 0\.5 is no integer, but the inputs are"):
        pad(tokens, 0.5)
    with pytest.raises(ScenarioError, match="inf is no integer"):
        pad(tokens, float("inf"))


def test_every_form_of_the_same_texts_trains_the_same_model(tmp_path: Path) -> None:
    """Padding has no weight in this network, so all three learn the same up to rounding."""
    models = []
    for name, collate in (("by_name", None), ("ragged", "tokens_and_mask"), ("ragged_by_name", "tokens_and_mask")):
        data = {"name": f"{HERE}:{name}", "clients": 4} | ({"collate": f"{HERE}:{collate}"} if collate else {})
        phases = [{"name": "p", "rounds": 3, "cohort": 4, "local": {"lr": 1.0, "batch_size": 8, "epochs": 2}}]
        tables = {"data": data, "model": f"{HERE}:MeanOfWords", "phases": phases}
        result = rayfl.run(tables, backend="inline", out=tmp_path, console=Console(quiet=True))
        models.append(result.state_dict)
        assert result.metrics["train_loss"][-1].as_py() < result.metrics["train_loss"][0].as_py()
    for other in models[1:]:
        for key, value in models[0].items():
            torch.testing.assert_close(other[key], value, rtol=0, atol=1e-5)


def test_pieces_share_the_values_they_are_cut_from() -> None:
    pieces = Ragged.of(TEXTS)
    taken = pieces.take(np.array([4, 1]))
    assert taken.values is pieces.values
    assert [piece.tolist() for piece in taken[:]] == [TEXTS[4].tolist(), TEXTS[1].tolist()]
    taken[:][0][:] = 0
    assert pieces[np.array([4])][0].tolist() == TEXTS[4].tolist()
    assert kind_of(Fields({"a": pieces, "b": TOKENS})) == "a [any] int64, b [8] int64"


@pytest.mark.parametrize("kept", [0, 7, 100])
def test_a_reader_keeps_inputs_by_name_within_its_budget(kept: int) -> None:
    samples = Samples(Fields({"input_ids": TOKENS, "mask": MASK}), Y)
    size = 8 * 8 + 8 + 8
    reader = SampleReader(samples, CPU, kept * size)
    assert reader.reserved_bytes == min(kept, 60) * size
    for seed in range(10):
        rows = np.random.default_rng(seed).choice(60, 5)
        x, y = reader.fetch(rows)
        assert x["input_ids"].tolist() == TOKENS[rows].tolist()
        assert x["mask"].tolist() == MASK[rows].tolist()
        assert y.tolist() == Y[rows].tolist()


def test_vectors_and_maps_are_labels_too() -> None:
    x = np.zeros((6, 2))
    for y, dtype in ((np.arange(12.0).reshape(6, 2), torch.float32), (np.ones((6, 3, 3), np.uint8), torch.int64)):
        data = Dataset("d", Samples(x, y), Samples(x, y), None, Provenance("arrays", ""))
        found = SampleReader(data.train, CPU).fetch(slice(1, 3))[1]
        assert (found.dtype, found.tolist()) == (dtype, y[1:3].tolist())


def wrong_type(samples: list[Any]) -> Any:
    return np.zeros(len(samples))


def wrong_length(samples: list[Any]) -> Any:
    return torch.zeros(1)


def failing(samples: list[Any]) -> Any:
    raise KeyError("no")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("ragged", {}, r"data\.collate: is required, because inputs of .*:ragged differ in length \(\[any\] int64\)"),
        ("ragged", {"collate": "pads"}, "unknown collation 'pads'; did you mean 'pad'"),
        ("ragged", {"collate": {"name": "pad", "by": 1}}, r"data\.collate\.by: not an option"),
        ("ragged", {"collate": f"{HERE}:CPU"}, r"data\.collate: .* is an object of type device"),
        ("ragged", {"collate": f"{HERE}:wrong_type"}, r"data\.collate: .* returned an object of type ndarray; a coll"),
        ("ragged", {"collate": f"{HERE}:wrong_length"}, r"data\.collate: .* returned a tensor \[1\] for 2 samples"),
        (
            "ragged",
            {"collate": f"{HERE}:failing"},
            r"data\.collate: .* raised KeyError: 'no'; a collation is called",
        ),
        ("ragged_by_name", {"collate": "pad"}, r"data\.collate: 'pad' is for single inputs, not for inputs by name"),
        ("by_name", {"normalize": "mnist"}, r"data\.normalize"),
        ("by_name", {"augment": ["flip"]}, r"data\.augment\.0: 'flip' is for images, .* \(.*input_ids \[8\] int64"),
    ],
)
def test_options_that_do_not_fit_the_inputs_are_named_by_key(name: str, data: dict[str, Any], message: str) -> None:
    if "normalize" in data:
        data = {"normalize": {"mean": [0.5], "std": [0.5]}}
    with pytest.raises(ScenarioError, match=message):
        store(name, **data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fields({}), "inputs by name: the mapping is empty"),
        (lambda: Fields({"a b": TOKENS}), "'a b' cannot be the name of an argument"),
        (lambda: Fields({"a": TOKENS, "b": TOKENS[1:]}), "differ in their number of rows: a 60, b 59"),
        (lambda: Ragged(TOKENS, np.array([0]), np.array([61])), "some do not lie inside the 60 values"),
        (lambda: Ragged(TOKENS, np.array([0]), np.array([1, 2])), "1 starts, 2 lengths"),
    ],
)
def test_inconsistent_inputs_raise(make: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make()


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ({"a": TOKENS}, {"b": TOKENS}, r"train inputs are a \[8\] int64, test inputs b \[8\] int64"),
        ({"a": TEXTS}, {"a": TOKENS[..., None]}, r"train inputs are a \[any\] int64, test inputs a \[any, 1\] int64"),
        ({"a": TOKENS * np.nan}, {"a": TOKENS * 1.0}, "train inputs 'a' hold values that are not finite"),
    ],
)
def test_train_and_test_inputs_by_name_are_of_one_kind(train: Any, test: Any, message: str) -> None:
    from rayfl.data.arrays import dataset_of_arrays

    with pytest.raises(RayflError, match=message):
        dataset_of_arrays("mine", (train, Y, test, Y))
