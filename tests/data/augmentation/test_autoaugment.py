"""AutoAugment: operations match torchvision, and are as frequent as in the published policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms import autoaugment, functional

from rayfl.config.data import Data
from rayfl.data.augmentation.augmentation import Compose
from rayfl.data.augmentation.geometric import Crop, Flip
from rayfl.data.augmentation.recipes import NAMES, RANGES, AutoAugmentCIFAR10, operation
from rayfl.data.batches import BatchSource
from rayfl.data.store import build_store
from rayfl.errors import ScenarioError
from rayfl.streams import stream

SIDE = 16
SHAPE = (12, SIDE, SIDE, 3)


def images() -> torch.Tensor:
    """Noise, images with few or dark colours, gradients, and images of one colour."""
    x = np.random.default_rng(0).integers(0, 256, SHAPE, np.uint8)
    x[3:5] //= 4
    x[5] = np.arange(SIDE)[:, None, None] * 3 + 60
    x[6] = 77
    x[7] = 0
    x[8] = np.where(x[8] > 200, 200, 100)
    return torch.from_numpy(x)


Reference = Callable[[torch.Tensor, float], torch.Tensor]
ON_VALUES: dict[str, Reference] = {
    "Identity": lambda image, _: image,
    "Invert": lambda image, _: functional.invert(image),
    "AutoContrast": lambda image, _: functional.autocontrast(image),
    "Equalize": lambda image, _: functional.equalize(image),
    "Posterize": lambda image, magnitude: functional.posterize(image, round(magnitude)),
    "Solarize": functional.solarize,
    "Brightness": functional.adjust_brightness,
    "Color": functional.adjust_saturation,
    "Contrast": functional.adjust_contrast,
    "Sharpness": functional.adjust_sharpness,
}


def done(name: str, magnitudes: np.ndarray) -> torch.Tensor:
    """The images after this operation alone."""
    numbers = operation(np.full(SHAPE[0], NAMES.index(name)), magnitudes, SHAPE)
    nothing = operation(np.zeros(SHAPE[0]), magnitudes, SHAPE)
    return AutoAugmentCIFAR10().apply(images(), torch.from_numpy(np.concatenate([numbers, nothing])))


@pytest.mark.parametrize("name", ON_VALUES)
def test_an_operation_on_values_matches_torchvision(name: str) -> None:
    magnitudes = np.linspace(*RANGES.get(name, (0.0, 1.0)), SHAPE[0] + 1)[:-1]
    found = done(name, magnitudes)
    assert found.dtype == torch.uint8
    assert found.is_contiguous()
    for image, after, magnitude in zip(images(), found, magnitudes, strict=True):
        expected = ON_VALUES[name](image.permute(2, 0, 1), float(magnitude)).permute(1, 2, 0)
        assert torch.equal(after, expected)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        # The maps of FedDecorr go from a pixel to its source, row first.
        ("Rotate", lambda image, m: functional.rotate(image, -m)),
        ("TranslateX", lambda image, m: functional.affine(image, 0.0, [-round(m * SIDE), 0], 1.0, [0.0])),
        ("TranslateY", lambda image, m: functional.affine(image, 0.0, [0, -round(m * SIDE)], 1.0, [0.0])),
        ("ShearY", lambda image, m: functional.affine(image, 0.0, [0, 0], 1.0, [float(np.rad2deg(np.arctan(m))), 0.0])),
    ],
)
def test_an_operation_on_positions_matches_torchvision(name: str, reference: Reference) -> None:
    magnitudes = np.linspace(*RANGES[name], SHAPE[0]) * 0.97
    for image, after, magnitude in zip(images(), done(name, magnitudes), magnitudes, strict=True):
        expected = reference(image.permute(2, 0, 1), float(magnitude)).permute(1, 2, 0)
        # torchvision computes in float32, which may pick the other of two equally near pixels.
        assert (after == expected).all(dim=2).float().mean() > 0.98


def test_operations_are_as_frequent_as_in_the_policy_of_torchvision() -> None:
    n = 40_000
    draws = AutoAugmentCIFAR10().draw((n, SIDE, SIDE, 3), stream(0, "augment"))
    published = autoaugment.AutoAugment(autoaugment.AutoAugmentPolicy.CIFAR10).policies
    for place, row in ((0, 0), (1, 8)):
        expected = Counter[str]()
        for pair in published:
            expected[pair[place][0]] += pair[place][1] / 25
        for number, name in enumerate(NAMES[1:], start=1):
            p = expected[name]
            assert abs((draws[row] == number).mean() - p) <= 5 * (p * (1 - p) / n) ** 0.5, name


def test_grey_images_have_no_colours_to_blend() -> None:
    """torchvision returns them unchanged."""
    grey = images()[..., :1].contiguous()
    coloured = operation(np.full(SHAPE[0], NAMES.index("Color")), np.linspace(0.1, 1.9, SHAPE[0]), SHAPE)
    assert torch.equal(AutoAugmentCIFAR10().apply(grey, torch.from_numpy(np.concatenate([coloured] * 2))), grey)


def test_magnitudes_fill_the_tenth_of_their_level() -> None:
    draws = AutoAugmentCIFAR10().draw((40_000, SIDE, SIDE, 3), stream(0, "augment"))
    rotated = draws[1][draws[0] == NAMES.index("Rotate")]  # level 2 alone
    assert -18 <= rotated.min() < -17.9
    assert -12.1 < rotated.max() < -12


@pytest.mark.usefixtures("few_writers")
def test_it_and_steps_before_it_get_pixels(generated: Path) -> None:
    tables = {"name": "cifar10", "source": "generated", "clients": 4, "normalize": "moon_cifar10"}
    store = build_store(
        Data.model_validate(tables | {"augment": ["feddecorr_cifar_autoaugment", "flip"]}), 0, generated, generated
    )
    source, rows = BatchSource(store, torch.device("cpu")), np.arange(20)
    ((found, _),) = source.training_batches(rows, 20, stream(1, "augment"))
    rng = stream(1, "augment")
    pixels = torch.from_numpy(np.asarray(store.train.x)[rows])
    augmented = Compose((Crop(), Flip(), AutoAugmentCIFAR10()))(pixels, rng)
    mean, std = (torch.tensor(values) for values in (store.normalize.mean, store.normalize.std))  # type: ignore[union-attr]
    expected = Flip()((augmented.float() / 255 - mean) / std, rng)
    assert torch.equal(found, expected.permute(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("augment", "unit"),
    [
        ([{"name": "crop", "fill": [255]}], r"values from 0 to 1; give"),
        (
            [{"name": "rotate", "fill": [1.0]}, "grayscale"],
            r"pixels from 0 to 255 \(a later augmentation needs those\)",
        ),
    ],
)
def test_a_colour_in_another_unit_than_the_images_have_is_refused(
    augment: list[Any], unit: str, generated: Path
) -> None:
    for normalize in (None, "moon_cifar10"):
        tables = {"name": "cifar10", "source": "generated", "clients": 4, "augment": augment, "normalize": normalize}
        said = unit.replace("values from 0 to 1", "normalised values") if normalize else unit
        with pytest.raises(ScenarioError, match=rf"data\.augment\.0\.fill: is \[\d+\.0\], but there .* of {said}"):
            build_store(Data.model_validate(tables), 0, generated, generated)


def brighter(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    return x + 0.1


@pytest.mark.usefixtures("few_writers")
def test_your_own_augmentation_before_it_raises(generated: Path) -> None:
    own = "tests.data.augmentation.test_autoaugment:brighter"
    tables = {"name": "cifar10", "source": "generated", "clients": 4, "augment": [own, "autoaugment_cifar10"]}
    message = rf"data\.augment\.0: '{own}' takes normalised images, but 'autoaugment_cifar10' after it needs pixels"
    with pytest.raises(ScenarioError, match=message):
        build_store(Data.model_validate(tables), 0, generated, generated)
