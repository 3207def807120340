"""Batched augmentations of colours equal those of torchvision for each image."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms import functional

from rayfl.data.augmentation.augmentation import Augmentation
from rayfl.data.augmentation.geometric import QuarterTurn
from rayfl.data.augmentation.photometric import ColorJitter, GaussianBlur, Grayscale, Solarize, shifted_hue
from rayfl.errors import ScenarioError
from rayfl.streams import stream

JITTER = ColorJitter(0.4, 0.4, 0.4, 0.1, probability=0.8)
EVERY = [JITTER, Grayscale(0.5), GaussianBlur(3, probability=0.5), Solarize(), QuarterTurn()]


def pixels(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, np.uint8))


def one_by_one(x: torch.Tensor, change: Any) -> torch.Tensor:
    """Applies `change(image, number)` to images [channels, height, width]."""
    found = [change(image.permute(2, 0, 1), number).permute(1, 2, 0) for number, image in enumerate(x)]
    return torch.stack(found)


def jittered(image: torch.Tensor, draws: np.ndarray) -> torch.Tensor:
    """Applies the steps of one image in the drawn order with torchvision."""
    factors, kinds, shift, early = draws[:3], draws[3:6], draws[6], draws[7:]
    blends = (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation)
    for before in (True, False):
        for factor, kind in zip(factors[early == before], kinds[early == before], strict=True):
            image = blends[int(kind)](image, float(factor))
        if before and shift:
            image = functional.adjust_hue(image, float(shift))
    return image


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_without_hue_matches_torchvision_bit_for_bit(channels: int) -> None:
    x, jitter = pixels(64, 16, 12, channels), ColorJitter(0.8, 0.6, 0.9)
    draws = jitter.draw((64, 16, 12, channels), stream(0, "augment"))
    found = jitter(x, stream(0, "augment"))
    assert torch.equal(found, one_by_one(x, lambda image, number: jittered(image, draws[:, number])))


def test_jitter_with_hue_matches_torchvision_up_to_rounding() -> None:
    x = pixels(200, 16, 12, 3)
    draws = JITTER.draw((200, 16, 12, 3), stream(0, "augment"))
    found = JITTER(x, stream(0, "augment"))
    expected = one_by_one(x, lambda image, number: jittered(image, draws[:, number]))
    difference = (found.int() - expected.int()).abs()
    # A value between two pixels may round to either, and later steps scale the difference.
    assert difference.max() <= 2
    assert (difference > 0).float().mean() < 1e-4


def test_hue_matches_the_standard_library() -> None:
    planes = pixels(4, 5, 5, 3).permute(3, 0, 1, 2).reshape(3, 4, 25).double()
    shift = torch.tensor([0.3, -0.45, 0.01, 0.5], dtype=torch.float64)
    found = shifted_hue(planes, shift)
    for image in range(4):
        for place in range(25):
            hue, saturation, value = colorsys.rgb_to_hsv(*(planes[:, image, place] / 255).tolist())
            turned = np.array(colorsys.hsv_to_rgb((hue + float(shift[image])) % 1, saturation, value))
            np.testing.assert_allclose(found[:, image, place].numpy(), np.floor(turned * 255.999 + 1e-9), atol=1e-9)


def test_jitter_draws_factors_orders_and_changed_images_like_torchvision() -> None:
    n = 40000
    draws = ColorJitter(0.4, 0.3, 2.0, 0.1, probability=0.75).draw((n, 8, 8, 3), stream(0, "augment"))
    factors, kinds, shift, early = draws[:3], draws[3:6], draws[6], draws[7:]
    changed = (factors != 1).any(axis=0)
    assert abs(changed.mean() - 0.75) < 0.01
    assert (shift[~changed] == 0).all()
    for kind, (low, high) in enumerate([(0.6, 1.4), (0.7, 1.3), (0.0, 3.0)]):
        drawn = factors[:, changed][kinds[:, changed] == kind]
        assert len(drawn) == changed.sum()
        assert low <= drawn.min() < low + 0.01
        assert high - 0.01 < drawn.max() <= high
        assert abs(drawn.mean() - (low + high) / 2) < 0.02
    assert -0.1 <= shift.min() < -0.099 < 0.099 < shift.max() <= 0.1
    orders = {(*kinds[:, image].astype(int), int(early[:, image].sum())): 0 for image in range(n)}
    for image in range(n):
        orders[(*kinds[:, image].astype(int), int(early[:, image].sum()))] += 1
    assert len(orders) == 24
    assert max(abs(count / n - 1 / 24) for count in orders.values()) < 0.006
    assert (np.diff(early, axis=0) <= 0).all()


@pytest.mark.parametrize("channels", [1, 3])
def test_grey_matches_torchvision(channels: int) -> None:
    x, grey = pixels(32, 9, 7, channels), Grayscale(0.5)
    chosen = grey.draw((32, 9, 7, channels), stream(0, "augment"))[0]
    assert {*chosen} == {0.0, 1.0}
    expected = one_by_one(
        x, lambda image, number: functional.rgb_to_grayscale(image, channels) if chosen[number] else image
    )
    assert torch.equal(grey(x, stream(0, "augment")), expected)


@pytest.mark.parametrize("threshold", [0, 100, 255])
def test_solarisation_matches_torchvision(threshold: int) -> None:
    x, solarize = pixels(32, 9, 7, 3), Solarize(threshold, probability=0.5)
    chosen = solarize.draw((32, 9, 7, 3), stream(0, "augment"))[0]
    expected = one_by_one(x, lambda image, number: functional.solarize(image, threshold) if chosen[number] else image)
    assert torch.equal(solarize(x, stream(0, "augment")), expected)


@pytest.mark.parametrize("kernel_size", [3, 5, 9])
def test_blur_matches_torchvision(kernel_size: int) -> None:
    blur = GaussianBlur(kernel_size, (0.2, 3.0), probability=0.5)
    x = torch.from_numpy(np.random.default_rng(0).random((24, 13, 8, 3)))
    draws = blur.draw((24, 13, 8, 3), stream(0, "augment"))
    sigma = np.sqrt(-0.5 / np.log(np.where(draws[0] < 1, draws[1], 1e-9) / draws[0]))
    expected = one_by_one(
        x,
        lambda image, number: (
            functional.gaussian_blur(image, [kernel_size] * 2, [float(sigma[number])])
            if draws[0, number] < 1
            else image
        ),
    )
    found = blur(x, stream(0, "augment"))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    blurred = draws[0] < 1
    assert 5 < blurred.sum() < 19
    assert 0.2 <= sigma[blurred].min() <= sigma[blurred].max() <= 3.0
    assert found.is_contiguous()
    assert torch.equal(found[~torch.from_numpy(blurred)], x[~torch.from_numpy(blurred)])


def test_blurred_pixels_are_rounded_to_the_nearest() -> None:
    x, blur = pixels(8, 12, 12, 3), GaussianBlur()
    exact = blur(x.double(), stream(0, "augment"))
    assert (blur(x, stream(0, "augment")) - exact).abs().max() <= 0.5 + 1e-4


def test_sigma_is_uniform_between_its_ends() -> None:
    draws = GaussianBlur(3, (0.5, 1.5)).draw((20000, 8, 8, 3), stream(0, "augment"))
    sigma = np.sqrt(-0.5 / np.log(draws[1] / draws[0]))
    assert abs(sigma.mean() - 1.0) < 0.01
    assert abs(sigma.std() - 1 / np.sqrt(12)) < 0.01


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_quarter_turns_match_numpy(dtype: torch.dtype) -> None:
    x, turn = pixels(64, 6, 6, 3).to(dtype), QuarterTurn()
    turns = turn.draw((64, 6, 6, 3), stream(0, "augment"))[0].astype(int)
    found = turn(x, stream(0, "augment"))
    assert found.is_contiguous()
    assert sorted({*turns.tolist()}) == [0, 1, 2, 3]
    for image, after, number in zip(x.numpy(), found.numpy(), turns, strict=True):
        np.testing.assert_array_equal(after, np.rot90(image, number))


@pytest.mark.parametrize("augmentation", EVERY, ids=lambda augmentation: type(augmentation).__name__)
def test_each_leaves_its_input_alone_and_repeats_with_the_same_stream(augmentation: Augmentation) -> None:
    x = pixels(16, 8, 8, 3)
    before = x.clone()
    found = augmentation(x, stream(1, "augment"))
    assert (found.dtype, found.shape, found.is_contiguous()) == (x.dtype, x.shape, True)
    assert torch.equal(x, before)
    assert torch.equal(found, augmentation(x, stream(1, "augment")))
    assert not torch.equal(found, augmentation(x, stream(2, "augment")))
    draws = torch.from_numpy(augmentation.draw((16, 8, 8, 3), stream(1, "augment")))
    assert draws.shape == (augmentation.num_draws, 16)
    # Only its own draws change an image.
    assert torch.equal(found[3:5], augmentation.apply(x[3:5], draws[:, 3:5]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianBlur(4), r"kernel_size of 'gaussian_blur' must be odd \(got 4\)"),
        (lambda: GaussianBlur(sigma=(2, 1)), r"sigma goes from 2 to 1; give the smallest first"),
        (lambda: GaussianBlur(17)(pixels(1, 8, 8, 3), stream(0, "a")), r"needs images larger than 8 pixels"),
        (
            lambda: QuarterTurn()(pixels(1, 8, 6, 3), stream(0, "a")),
            r"needs square images, but these are 8 x 6; scale them first",
        ),
        (lambda: JITTER(pixels(1, 8, 8, 4), stream(0, "a")), r"is for images of 1 or 3 channels, these have 4"),
        (lambda: Grayscale()(pixels(1, 8, 8, 2), stream(0, "a")), r"is for images of 1 or 3 channels, these have 2"),
    ],
)
def test_invalid_options_and_images_raise(make: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        make()
