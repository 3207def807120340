"""Transforms of torchvision by import path: their inputs, random numbers, and restored generators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torchvision.transforms import v2

import rayfl
from rayfl.config.data import Data
from rayfl.data.batches import BatchSource
from rayfl.data.store import ShardStore, build_store
from rayfl.errors import ScenarioError
from tests.data.resolved import resolved

HERE = "tests.data.augmentation.test_torchvision_transform"
V2 = "torchvision.transforms.v2"
IMAGES = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), np.uint8)
LABELS = np.arange(12) % 3
ROWS = np.arange(12)
BUILT = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomCrop(8, padding=2)])


def images() -> Any:
    return IMAGES, LABELS, IMAGES, LABELS


def factory(p: float = 0.5) -> v2.Transform:
    return v2.RandomVerticalFlip(p)


class Darker(v2.Transform):  # type: ignore[misc]
    """A user-defined transform."""

    def transform(self, inpt: Any, params: Any) -> Any:
        assert inpt.dtype == torch.uint8
        assert inpt.shape == (3, 8, 8)
        return inpt // int(torch.randint(1, 5, ()))


def store(*augment: Any, **data: Any) -> ShardStore:
    tables = {"name": f"{HERE}:images", "clients": 3, "augment": list(augment), **data}
    return build_store(resolved(Data.model_validate(tables)), 0, Path(), Path())


def batches(*augment: Any, seed: int = 1, **data: Any) -> list[torch.Tensor]:
    source = BatchSource(store(*augment, **data), torch.device("cpu"))
    return [x for x, _ in source.training_batches(ROWS, 5, np.random.default_rng(seed))]


def by_hand(transform: v2.Transform, per: str, seed: int = 1) -> list[torch.Tensor]:
    """Applies it as in the documentation of torchvision, with a seed per batch from the stream of the client."""
    rng = np.random.default_rng(seed)
    found = []
    for start in range(0, 12, 5):
        x = torch.from_numpy(IMAGES[start : start + 5]).permute(0, 3, 1, 2)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            found.append(transform(x) if per == "batch" else torch.stack([transform(image) for image in x]))
    return found


@pytest.mark.parametrize(
    ("chosen", "transform"),
    [
        ({"name": f"{V2}:RandomErasing", "p": 0.7, "value": 3}, v2.RandomErasing(0.7, value=3)),
        ({"name": f"{V2}:ColorJitter", "brightness": 0.5}, v2.ColorJitter(0.5)),
        ({"name": f"{V2}:RandomAffine", "degrees": 20}, v2.RandomAffine(20)),
        ({"name": f"{V2}:RandAugment"}, v2.RandAugment()),
        ({"name": f"{HERE}:BUILT"}, BUILT),
        ({"name": f"{HERE}:Darker"}, Darker()),
    ],
)
@pytest.mark.parametrize("per", ["sample", "batch"])
def test_a_transform_gets_pixels_and_the_clients_random_numbers(chosen: Any, transform: Any, per: str) -> None:
    if per == "batch" and isinstance(transform, Darker):
        return
    for given in [{**chosen, "per": per}, *([chosen] if per == "sample" else [])]:
        expected = by_hand(transform, per)
        for x, plain in zip(batches(given), expected, strict=True):
            assert torch.equal(x, plain.float() / 255)


def test_a_draw_is_per_sample_unless_per_is_batch() -> None:
    flip = {"name": f"{V2}:RandomHorizontalFlip"}
    plain = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255
    flipped = {}
    for per in ("sample", "batch"):
        kinds = []
        for seed in range(10):
            x = torch.cat(batches({**flip, "per": per}, seed=seed))
            mirrored = [torch.equal(x[row], plain[row].flip(2)) for row in range(12)]
            kinds += [len(set(mirrored[start : start + 5])) for start in (0, 5)]
        flipped[per] = kinds
    assert set(flipped["batch"]) == {1}
    assert 2 in flipped["sample"]


def test_your_own_factory_may_return_a_transform() -> None:
    found = batches({"name": f"{HERE}:factory", "p": 0.4})
    for x, plain in zip(found, by_hand(v2.RandomVerticalFlip(0.4), "sample"), strict=True):
        assert torch.equal(x, plain.float() / 255)


def test_the_pytorch_generator_is_restored() -> None:
    source = BatchSource(store(f"{V2}:RandomErasing"), torch.device("cpu"))
    before = torch.get_rng_state()
    for _ in source.training_batches(ROWS, 5, np.random.default_rng(0)):
        pass
    assert torch.equal(torch.get_rng_state(), before)


def test_images_are_normalised_after_the_transform_and_other_augmentations_keep_their_order() -> None:
    erased = {"name": f"{V2}:RandomErasing", "p": 1.0, "value": 0}
    (x, *_) = batches("flip", erased, normalize={"mean": [0.5] * 3, "std": [0.5] * 3})
    assert (x == -1).any(dim=1).flatten(1).any(dim=1).all()  # erased before black became -1


def test_a_run_has_the_same_bits_again(tmp_path: Path) -> None:
    augment = [{"name": f"{V2}:RandomErasing"}, {"name": f"{V2}:ColorJitter", "brightness": 0.4}]
    data = {"name": f"{HERE}:images", "clients": 3, "augment": augment}
    phases = [{"name": "p", "rounds": 2, "cohort": 3, "local": {"lr": 0.1, "batch_size": 2}}]
    tables = {"data": data, "model": {"name": "mlp", "hidden": [4]}, "phases": phases}
    found = [rayfl.run(tables, backend="inline", out=tmp_path, console=Console(quiet=True)) for _ in range(2)]
    again = rayfl.run(found[0].directory / "scenario.toml", backend="inline", out=tmp_path, console=Console(quiet=True))
    for other in (found[1], again):
        assert all(torch.equal(value, other.state_dict[key]) for key, value in found[0].state_dict.items())


def test_options_are_written_out() -> None:
    found = resolved(Data.model_validate({"name": "femnist", "augment": [f"{V2}:RandomErasing"]}))
    assert found.augment[0].options == {
        "p": 0.5, "scale": [0.02, 0.33], "ratio": [0.3, 3.3], "value": 0.0, "inplace": False, "per": "sample",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        ([{"name": f"{V2}:RandomErasing", "per": "image"}], r"data\.augment\.0\.per: must be 'sample' or 'batch'"),
        ([{"name": f"{V2}:RandomErasing", "q": 1}], r"data\.augment\.0\.q: not an option"),
        ([{"name": f"{V2}:RandomErasing", "p": 2}], r"data\.augment\.0: .*RandomErasing' raised ValueError"),
        (
            [{"name": f"{V2}:Resize", "size": [4, 4]}],
            r"data\.augment\.0: .* returned uint8\[3, 4, 4\] for uint8",
        ),
        ([{"name": f"{HERE}:BUILT", "p": 1}], r"data\.augment\.0\.p: '.*BUILT' is an instance and takes only per"),
        ([f"{V2}:RandomEraser"], "has no 'RandomEraser'; did you mean"),
    ],
)
def test_transforms_that_cannot_be_used_are_named_by_key(augment: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        store(*augment)
