"""Errors and wrong results of user-defined data, partitioners and augmentations are attributed to user code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import transforms

import rayfl
from rayfl.config.data import Data
from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.data.store import ShardStore, build_store
from rayfl.errors import DataError, RayflError, ScenarioError

HERE = "tests.data.test_user_code"
RAYFL = Path(rayfl.__file__).parent  # a checkout may have the same name
IMAGES = np.random.default_rng(0).integers(0, 256, (12, 4, 4, 3), np.uint8)
LABELS = np.arange(12) % 3
PARTITION: dict[str, Callable[[], Any]] = {}
SOURCE: dict[str, Callable[[], Any]] = {}


def images() -> Any:
    return IMAGES, LABELS, IMAGES, LABELS


def source() -> Any:
    return SOURCE["is"]()


def partitioner(labels: np.ndarray) -> Any:
    return PARTITION["is"]()


def store(tmp_path: Path, **data: Any) -> ShardStore:
    tables = {"name": f"{HERE}:images", "clients": 3} | data
    return build_store(Data.model_validate(tables), 0, tmp_path, tmp_path)


def failure(tmp_path: Path, kind: type[RayflError], **data: Any) -> str:
    with pytest.raises(kind) as caught:
        store(tmp_path, **data)
    return str(caught.value)


def partitioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Any) -> ShardStore:
    monkeypatch.setitem(PARTITION, "is", lambda: found)
    return store(tmp_path, partition=f"{HERE}:partitioner")


@pytest.mark.parametrize("owners", [np.arange(12) % 3, [0] * 4 + [2] * 4 + [1] * 4, np.arange(12, dtype=np.uint8) % 3])
def test_a_partitioner_may_return_the_owner_of_every_sample(
    owners: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = partitioned(tmp_path, monkeypatch, owners).train_shards
    for client in range(3):
        assert shards[client].tolist() == [row for row, owner in enumerate(owners) if owner == client]


def shards(rows: Any, offsets: Any = (0, 1, 2, 3)) -> Shards:
    return Shards(np.array(rows), np.array(offsets))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "returned None for 12 training samples; a partitioner returns rayfl.data.Shards, or the owner"),
        ({0: [1, 2]}, "returned an object of type dict for 12 training samples; a partitioner returns"),
        (np.arange(11), r"returned an array int64\[11\] for 12 training samples"),
        (np.zeros(12), r"returned an array float64\[12\] for 12 training samples"),
        (np.arange(12) - 1, "returned owners from -1 to 10 for 12 training samples and 3 clients"),
        (
            np.arange(12),
            "returned owners from 0 to 11 for 12 training samples and 3 clients; clients are numbered from",
        ),
        (shards([0, 1, 12]), "returned row 12, but the 12 training samples are rows 0 to 11"),
        (shards([0, -1, 2]), "returned row -1, but the 12 training samples are rows 0 to 11"),
        (
            shards([0, 5, 5]),
            r"returned row 5 more than once \(clients 1 and 2\); a sample belongs to one client at most",
        ),
        (shards([0, 1, 2], [0, 1, 2]), "returned Shards whose offsets do not rise from 0 to 3"),
        (shards([0, 1, 2], [0, 2, 1, 3]), "returned Shards whose offsets do not rise from 0 to 3"),
        (shards([0, 1, 2], [0, 1, 3]), "returned shards of 2 clients, but data.clients is 3"),
        (shards([0.0, 1.0, 2.0]), r"returned Shards whose rows are an array float64\[3\], not a vector of integers"),
    ],
)
def test_a_wrong_result_of_a_partitioner_raises(
    found: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=rf"^data\.partition: '{HERE}:partitioner' {message}"):
        partitioned(tmp_path, monkeypatch, found)


def raising(*_: Any) -> Any:
    raise KeyError("nothing")


def test_an_exception_of_a_partitioner_is_one_line_and_the_traceback_of_user_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PARTITION, "is", raising)
    first, *rest = failure(tmp_path, ScenarioError, partition=f"{HERE}:partitioner").splitlines()
    assert first == f"data.partition: '{HERE}:partitioner' raised KeyError: 'nothing'"
    assert "in partitioner" in rest[1]
    assert not any(f"{RAYFL}/" in line for line in rest)


@pytest.mark.parametrize(("leave", "said"), [(raising, "raised KeyError: 'nothing'"), (sys.exit, "tried to exit")])
def test_an_exception_of_a_source_names_the_source(
    leave: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCE, "is", leave)
    message = failure(tmp_path, ScenarioError, name=f"{HERE}:source")
    assert message.startswith(f"data.options: '{HERE}:source' {said}")


def natural(rows: list[int]) -> Dataset:
    samples = Samples(IMAGES, LABELS)
    clients = NaturalClients(("a", "b"), Shards(np.array(rows), np.array([0, 1, 2])), Shards.by_owner(LABELS % 2, 2))
    return Dataset("mine", samples, samples, 3, Provenance("arrays", "mine"), clients)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            lambda: (IMAGES, LABELS + 10**9, IMAGES, LABELS),
            "the largest label is 1000000002, which would mean 1000000003 classes",
        ),
        (lambda: (IMAGES, LABELS - 1, IMAGES, LABELS), "train_y has the label -1; classes are numbered from 0"),
        (lambda: 42, "returned an object of type int, which is neither a rayfl.data.Dataset nor arrays"),
        (
            lambda: (IMAGES, LABELS),
            r"neither a rayfl.data.Dataset nor arrays \(train_x, train_y, test_x, test_y",
        ),
        (lambda: (np.float64(3), LABELS, IMAGES, LABELS), "train_x is a single value"),
        (lambda: natural([3, 40]), "train shards of '.*' returned row 40|train shards of '.*': returned row 40"),
        (
            lambda: Dataset("mine", Samples(IMAGES, LABELS), Samples(IMAGES, LABELS), 10**9, Provenance("arrays", "")),
            "mine: has 1000000000 classes; allowed are 1 to 1000000",
        ),
        (
            lambda: Dataset("mine", Samples(IMAGES, LABELS / 2), Samples(IMAGES, LABELS), 3, Provenance("arrays", "")),
            r"mine: train labels are float64\[12\], but 3 classes need a vector of integers",
        ),
    ],
)
def test_data_of_another_form_raises_in_one_line(
    given: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCE, "is", given)
    with pytest.raises(DataError, match=message) as caught:
        store(tmp_path, name=f"{HERE}:source", clients=None if "natural" in message else 2)
    assert "\n" not in str(caught.value)


def brighter(x: torch.Tensor, rng: np.random.Generator, by: float = 0.1) -> torch.Tensor:
    return x + by * rng.random()


class Brighter:
    def __init__(self, by: float = 0.1) -> None:
        self.by = by

    def __call__(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        return brighter(x, rng, self.by)


@pytest.mark.parametrize("augmentation", ["brighter", "Brighter"])
def test_your_own_augmentation_is_a_function_or_a_class_with_options(augmentation: str, tmp_path: Path) -> None:
    from rayfl.data.batches import BatchSource

    chosen = ["flip", {"name": f"{HERE}:{augmentation}", "by": 2.0}]
    found = BatchSource(store(tmp_path, augment=chosen), torch.device("cpu"))
    rng = np.random.default_rng(5)
    batches = [x for x, _ in found.training_batches(np.arange(12), 5, np.random.default_rng(5))]
    for x, rows in zip(batches, np.split(np.arange(12), [5, 10]), strict=True):
        plain = torch.from_numpy(IMAGES[rows]).float() / 255
        mirrored = torch.from_numpy(rng.random(len(rows)) < 0.5)
        flipped = torch.where(mirrored[:, None, None, None], plain.flip(2), plain)
        assert torch.equal(x, (flipped + 2.0 * rng.random()).permute(0, 3, 1, 2))


def to_pil() -> Any:
    return transforms.ToPILImage()


def two_results() -> Any:
    return lambda x, rng: (x, x)


def doubles() -> Any:
    return lambda x, rng: x.double()


def smaller() -> Any:
    return lambda x, rng: x[:, 1:]


def number() -> Any:
    return 3


@pytest.mark.parametrize(
    ("augmentation", "message"),
    [
        (
            "to_pil",
            r"raised TypeError: .*; an augmentation is called as augmentation\(x, rng\) with a float32 tensor x",
        ),
        ("two_results", r"returned an object of type tuple; an augmentation is called as augmentation\(x, rng\)"),
        ("doubles", r"returned float64\[2, 4, 4, 3\] on cpu for float32\[2, 4, 4, 3\] on cpu; an augmentation is"),
        ("smaller", r"returned float32\[2, 3, 4, 3\] on cpu for float32\[2, 4, 4, 3\] on cpu"),
        ("number", "returned an object of type int; an augmentation is called as"),
        ("LABELS", "is an object of type ndarray, not an augmentation"),
        ("raising_factory", "raised KeyError: 'nothing'"),
    ],
)
def test_an_invalid_augmentation_raises_before_training(augmentation: str, message: str, tmp_path: Path) -> None:
    said = failure(tmp_path, ScenarioError, augment=["flip", f"{HERE}:{augmentation}"])
    first, *rest = said.splitlines()
    assert re.match(rf"data\.augment\.1: '{HERE}:{augmentation}' {message}", first), first
    assert not any(f"{RAYFL}/data/" in line for line in rest)


def raising_factory() -> Any:
    return raising()


@pytest.mark.parametrize("name", ["os:system", "builtins:print"])
@pytest.mark.parametrize("key", ["name", "partition", "augment"])
def test_a_builtin_of_python_raises_before_it_is_called(key: str, name: str, tmp_path: Path) -> None:
    said = failure(tmp_path, ScenarioError, **{key: [name] if key == "augment" else name})
    assert f"'{name}': is part of Python, so " in said
    assert "rayfl did not call it" in said


def test_reflecting_further_than_the_image_raises_before_training(tmp_path: Path) -> None:
    said = failure(tmp_path, ScenarioError, augment=["moon_cifar10"])
    assert "'crop' with padding 4 and mode 'reflect' needs images larger than 4 pixels, these are 4 x 4" in said
