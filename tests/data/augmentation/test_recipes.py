"""Augmentations of papers equal the original transformations of the raw pixels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms import functional

from rayfl.config.data import NORMALIZATIONS, Data
from rayfl.config.registry import call_with_options
from rayfl.data import augmentations
from rayfl.data.augmentation.geometric import Crop, Flip, Rotate
from rayfl.data.batches import BatchSource
from rayfl.data.store import build_store
from rayfl.errors import ScenarioError
from rayfl.streams import stream

CIFAR_RECIPES = [name for name in augmentations if "cifar" in name]


def recipe(name: str) -> Callable[[torch.Tensor, np.random.Generator], torch.Tensor]:
    augmentation: Any = call_with_options(augmentations.resolve(name), {}, {}, "data.augment.0")
    return augmentation  # type: ignore[no-any-return]


def pixels(n: int) -> torch.Tensor:
    return torch.rand((n, 32, 32, 3), generator=torch.Generator().manual_seed(0)) * 0.9 + 0.05


def normalized(x: torch.Tensor, name: str) -> torch.Tensor:
    mean, std = (torch.tensor(values) for values in NORMALIZATIONS[name])
    return (x - mean) / std


@pytest.mark.parametrize("name", CIFAR_RECIPES)
def test_a_recipe_keeps_shape_and_input_and_repeats_with_the_same_stream(name: str) -> None:
    x = normalized(pixels(6), "moon_cifar10")
    if "autoaugment" in name:
        x = (pixels(6) * 255).to(torch.uint8)
    before = x.clone()
    first = recipe(name)(x, stream(1, "augment"))
    assert first.shape == x.shape
    assert first.is_contiguous()
    assert torch.equal(x, before)
    assert torch.equal(first, recipe(name)(x, stream(1, "augment")))
    assert not torch.equal(first, recipe(name)(x, stream(2, "augment")))


@pytest.mark.parametrize(
    ("name", "normalization"),
    [
        ("moon_cifar100", "moon_cifar100"),
        ("feddecorr_cifar10", "moon_cifar10"),
        ("feddecorr_cifar100", "moon_cifar100"),
        ("niid_bench_tiny_imagenet", "tiny_imagenet"),
    ],
)
def test_recipes_that_pad_before_they_normalise_are_the_same_steps_on_raw_pixels(name: str, normalization: str) -> None:
    x = pixels(20)
    rng = stream(0, "augment")
    raw = Flip()(Crop(4)(x, rng), rng)
    if name in ("moon_cifar100", "niid_bench_tiny_imagenet"):
        raw = Rotate(15)(raw, rng)
    augmented = recipe(name)(normalized(x, normalization), stream(0, "augment"))
    torch.testing.assert_close(augmented, normalized(raw, normalization))


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("moon_cifar100", "moon_cifar100"),
        pytest.param("feddecorr_cifar10", "moon_cifar10", marks=pytest.mark.slow),
        pytest.param("feddecorr_cifar100", "moon_cifar100", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_recipes_that_fill_with_black_require_their_normalisation(name: str, needed: str, tmp_path: Path) -> None:
    tables = {"name": "cifar100", "source": "generated", "clients": 4, "augment": [name]}
    for other in ({}, {"normalize": "feddyn_cifar100"}):
        message = f"data.augment.0: '{name}' fills with the black of data.normalize = \"{needed}\"; set that"
        with pytest.raises(ScenarioError, match=message):
            build_store(Data.model_validate(tables | other), 0, tmp_path, tmp_path)
    mean, std = NORMALIZATIONS[needed]
    for same in (needed, {"mean": mean, "std": std}):
        build_store(Data.model_validate(tables | {"normalize": same}), 0, tmp_path, tmp_path)


@pytest.mark.parametrize(("name", "padding"), [("feddyn_cifar", 4), ("fedexp_cifar", 4), ("fps_cifar", 2)])
def test_recipes_that_pad_what_is_normalised_show_zeros_as_far_as_they_pad(name: str, padding: int) -> None:
    x = torch.ones(2000, 32, 32, 3)
    seen = torch.cat([recipe(name)(x[i : i + 20], stream(i, "augment")) for i in range(0, 2000, 20)])
    zeros = (seen == 0).all(dim=3).any(dim=0)
    inner = slice(padding, 32 - padding)
    assert not zeros[inner, inner].any()
    assert zeros.sum() == 32 * 32 - (32 - 2 * padding) ** 2


def shift_of(image: torch.Tensor) -> tuple[int, int, bool]:
    """How far a marked image moved down and right, and whether it was mirrored."""
    mark, beside = ((image[..., 0] == value).nonzero()[0].tolist() for value in (2.0, 3.0))
    mirrored = beside[1] < mark[1]
    return mark[0] - 16, (31 - mark[1] if mirrored else mark[1]) - 15, mirrored


def marked(n: int) -> torch.Tensor:
    x = torch.zeros(n, 32, 32, 1)
    x[:, 16, 15], x[:, 16, 16] = 2.0, 3.0
    return x


def test_feddyn_crops_half_of_the_images_and_mirrors_half() -> None:
    moves = [shift_of(image) for image in recipe("feddyn_cifar")(marked(4000), stream(0, "augment"))]
    still = np.mean([move[:2] == (0, 0) for move in moves])
    assert abs(still - (0.5 + 0.5 / 81)) < 5 * 0.5 / 4000**0.5
    assert abs(np.mean([move[2] for move in moves]) - 0.5) < 5 * 0.5 / 4000**0.5
    assert {abs(move[0]) for move in moves} == {0, 1, 2, 3, 4}


def test_fedexp_moves_and_mirrors_a_whole_batch_alike() -> None:
    moves = set()
    for seed in range(50):
        batch = {shift_of(image) for image in recipe("fedexp_cifar")(marked(8), stream(seed, "augment"))}
        assert len(batch) == 1
        moves |= batch
    assert len(moves) > 25


def test_moon_cuts_its_windows_of_cifar10_from_the_mirrored_image() -> None:
    x = pixels(8)
    rng = stream(0, "augment")
    tops, lefts = rng.integers(0, 9, (2, 8))
    mirrored = rng.random(8) < 0.5
    for image, after, top, left, flip in zip(
        x, recipe("moon_cifar10")(x, stream(0, "augment")), tops, lefts, mirrored, strict=True
    ):
        padded = functional.pad(image.permute(2, 0, 1), [4], padding_mode="reflect")
        window = functional.crop(padded, int(top), int(left), 32, 32)
        assert torch.equal(after, (functional.hflip(window) if flip else window).permute(1, 2, 0))


@pytest.mark.parametrize(
    ("name", "order", "share", "saturation", "blurred", "solarized"),
    [
        ("simsiam", "crop jitter grey blur flip", 0.2, 0.4, 0.5, 0.0),
        ("orchestra_a", "crop flip jitter grey blur", 0.5, 0.2, 0.5, 0.0),
        ("orchestra_b", "crop flip jitter grey blur solarize", 0.5, 0.2, 0.1, 0.2),
    ],
)
def test_views_for_self_supervision_draw_what_their_papers_say(
    name: str, order: str, share: float, saturation: float, blurred: float, solarized: float
) -> None:
    steps: Any = recipe(name)
    shape, n = (6000, 32, 32, 3), 6000
    draws, first = {}, 0
    drawn = steps.draw(shape, stream(0, "augment"))
    for word, step in zip(order.split(), steps.steps, strict=True):
        draws[word] = drawn[first : first + step.num_draws]
        first += step.num_draws
    area = draws["crop"][2] * draws["crop"][3] / 32**2
    assert share - 0.05 < area.min() < share + 0.02
    assert area.max() > 0.97
    factors, kinds, shift = draws["jitter"][:3], draws["jitter"][3:6], draws["jitter"][6]
    for kind, strength in enumerate((0.4, 0.4, saturation)):
        of_kind = factors[kinds == kind]
        assert 1 - strength <= of_kind.min() < 1.01 - strength
        assert 0.99 + strength < of_kind.max() <= 1 + strength
    assert 0.099 < np.abs(shift).max() <= 0.1
    shares = {"jitter": (shift != 0, 0.8), "grey": (draws["grey"][0], 0.2), "flip": (draws["flip"][0], 0.5)}
    shares["blur"] = (draws["blur"][0] < 1, blurred)
    if solarized:
        shares["solarize"] = (draws["solarize"][0], solarized)
    for chosen, expected in shares.values():
        assert abs(chosen.mean() - expected) < 5 * 0.5 / n**0.5
    assert len(draws["blur"]) == (3 if name == "simsiam" else 2)  # the kernel's radius, and its middle
    crop: Any = steps.steps[0]
    assert crop.interpolation == ("bilinear" if name == "simsiam" else "bicubic")


@pytest.mark.parametrize("name", ["simsiam", "orchestra_a", "orchestra_b"])
@pytest.mark.slow
def test_views_for_self_supervision_are_made_of_pixels(name: str, tmp_path: Path) -> None:
    tables = {"name": "cifar10", "source": "generated", "clients": 4, "augment": [name], "normalize": "feddyn_cifar10"}
    store = build_store(Data.model_validate(tables), 0, tmp_path, tmp_path)
    source = BatchSource(store, torch.device("cpu"))
    rows = np.arange(16)
    ((x, _),) = source.training_batches(rows, 16, stream(0, "augment"))
    found = recipe(name)(torch.from_numpy(store.train.x[rows]), stream(0, "augment"))
    mean, std = (torch.tensor(values) for values in NORMALIZATIONS["feddyn_cifar10"])
    torch.testing.assert_close(x.permute(0, 2, 3, 1), (found / 255 - mean) / std)
