"""Augmentations equal a plain loop over samples with the same draws."""

from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms import functional

from rayfl.config.registry import call_with_options
from rayfl.data import augmentations
from rayfl.data.augmentation.augmentation import Augmentation
from rayfl.data.augmentation.geometric import Crop, Flip, Rotate
from rayfl.errors import ScenarioError
from rayfl.streams import stream

SHAPES = [(7, 12, 9, 3), (5, 28, 28, 1), (1, 32, 32, 3)]


def images(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", SHAPES)
def test_flip_mirrors_the_drawn_samples_left_to_right(shape: tuple[int, ...]) -> None:
    x = images(shape)
    flipped = Flip(0.5)(x, stream(0, "augment"))
    draws = stream(0, "augment").random(len(x))
    for before, after, draw in zip(x, flipped, draws, strict=True):
        expected = np.flip(before.numpy(), axis=1) if draw < 0.5 else before.numpy()
        np.testing.assert_array_equal(after.numpy(), expected)
    assert flipped.is_contiguous()


def test_flip_mirrors_about_the_given_share_of_samples() -> None:
    x = images((4000, 1, 2, 1))
    changed = (Flip(0.2)(x, stream(0, "augment")) != x).any(dim=(1, 2, 3))
    assert abs(changed.float().mean().item() - 0.2) < 5 * (0.2 * 0.8 / 4000) ** 0.5


@pytest.mark.parametrize("probability", [0, 1])
def test_flip_with_probability_zero_or_one_mirrors_none_or_all(probability: int) -> None:
    x = images((20, 4, 4, 1))
    assert torch.equal(Flip(probability)(x, stream(0, "augment")), x.flip(2) if probability else x)


@pytest.mark.parametrize(("mode", "numpy_mode"), [("zeros", "constant"), ("reflect", "reflect")])
@pytest.mark.parametrize("padding", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_crop_cuts_the_drawn_window_of_each_padded_sample(
    shape: tuple[int, ...], padding: int, mode: Any, numpy_mode: Any
) -> None:
    x = images(shape)
    _, height, width, _ = shape
    cropped = Crop(padding, mode)(x, stream(0, "augment"))
    tops, lefts = stream(0, "augment").integers(0, 2 * padding + 1, (2, len(x)))
    assert cropped.shape == x.shape
    assert cropped.is_contiguous()
    for before, after, top, left in zip(x, cropped, tops, lefts, strict=True):
        padded = np.pad(before.numpy(), ((padding, padding), (padding, padding), (0, 0)), mode=numpy_mode)
        np.testing.assert_array_equal(after.numpy(), padded[top : top + height, left : left + width])


def test_crop_draws_every_offset_of_both_directions() -> None:
    x = torch.zeros(2000, 3, 3, 1)
    x[:, 1, 1] = 1
    centres = Crop(1)(x, stream(0, "augment")).flatten(1).argmax(1)
    counts = np.bincount(centres.numpy(), minlength=9)
    assert abs(counts - 2000 / 9).max() < 5 * (2000 / 9 * 8 / 9) ** 0.5


def test_flip_of_the_batch_mirrors_all_or_none() -> None:
    x = images((5, 6, 7, 3))
    flip, mirrored = Flip(0.5, per="batch"), 0
    for seed in range(200):
        flipped = flip(x, stream(seed, "augment"))
        all_mirrored = torch.equal(flipped, x.flip(2))
        assert all_mirrored or torch.equal(flipped, x)
        mirrored += all_mirrored
    assert abs(mirrored - 100) < 5 * 50**0.5


def test_crop_of_the_batch_cuts_the_same_window_of_all() -> None:
    x = images((5, 6, 7, 3))
    cropped = Crop(2, per="batch")(x, stream(0, "augment"))
    alone = [Crop(2)(image[None], stream(0, "augment")) for image in x]
    assert torch.equal(cropped, torch.cat(alone))


def test_crop_with_a_probability_leaves_the_others_unchanged() -> None:
    # One pixel that is not zero: where it stays in the middle, the window was the image, or another draw of it.
    x = torch.zeros(4000, 5, 5, 1)
    x[:, 2, 2] = 1
    centres = Crop(2, probability=0.5)(x, stream(0, "augment")).flatten(1).argmax(1)
    counts = np.bincount(centres.numpy(), minlength=25)
    for place, probability in enumerate([0.5 / 25] * 12 + [0.5 + 0.5 / 25] + [0.5 / 25] * 12):
        assert abs(counts[place] / 4000 - probability) < 5 * (probability * (1 - probability) / 4000) ** 0.5


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_crop_with_probability_zero_changes_nothing(mode: Any) -> None:
    x = images((20, 9, 9, 3))
    assert torch.equal(Crop(mode=mode, probability=0)(x, stream(0, "augment")), x)


@pytest.mark.parametrize("fill", [(0.5,), (0.1, -0.2, 0.3)])
def test_crop_fills_the_border_with_the_given_colour(fill: tuple[float, ...]) -> None:
    x = images((50, 4, 4, 3))
    cropped, bare = (Crop(4, fill=colour)(x, stream(0, "augment")) for colour in (fill, (0.0,)))
    border = (bare == 0).all(dim=3, keepdim=True)
    assert border.any()
    expected = torch.where(border, torch.tensor(fill).expand_as(bare), bare)
    assert torch.equal(cropped, expected)


@pytest.mark.parametrize("fill", [(0.0,), (0.5, -0.25, 1.0)])
@pytest.mark.parametrize("shape", [(7, 12, 9, 3), (20, 32, 32, 3)])
def test_rotation_turns_each_image_as_torchvision_does_by_the_drawn_angle(
    shape: tuple[int, ...], fill: tuple[float, ...]
) -> None:
    x = images(shape)
    turned = Rotate(15, fill)(x, stream(0, "augment"))
    assert turned.is_contiguous()
    angles = stream(0, "augment").uniform(-15, 15, len(x))
    nearest = functional.InterpolationMode.NEAREST
    for before, after, angle in zip(x, turned, angles, strict=True):
        expected = functional.rotate(before.permute(2, 0, 1), float(angle), nearest, fill=list(fill)).permute(1, 2, 0)
        # torchvision computes in float32, which may pick the other of two equally near pixels.
        assert (after == expected).all(dim=2).float().mean() > 0.995


def test_rotation_by_quarter_turns_moves_every_pixel() -> None:
    class Quarter(np.random.Generator):
        def uniform(self, *arguments: Any) -> Any:
            return np.full((2, 1, 1), 90.0)

    x = images((2, 8, 8, 3))
    turned = Rotate(180)(x, Quarter(np.random.PCG64(0)))
    assert torch.equal(turned, x.rot90(1, dims=(1, 2)))


def test_rotation_by_a_tiny_angle_changes_nothing() -> None:
    x = images((5, 9, 12, 1))
    assert torch.equal(Rotate(1e-6)(x, stream(0, "augment")), x)


ALL = [Flip(), Crop(), Crop(mode="reflect"), Crop(probability=0.5, fill=(0.1, 0.2, 0.3)), Rotate()]
ALL += [Flip(per="batch"), Crop(per="batch")]


@pytest.mark.parametrize("augmentation", ALL)
def test_augmentation_leaves_its_input_alone_and_repeats_with_the_same_stream(augmentation: Augmentation) -> None:
    x = images((6, 10, 10, 3))
    before = x.clone()
    first = augmentation(x, stream(3, "augment"))
    assert torch.equal(x, before)
    assert torch.equal(first, augmentation(x, stream(3, "augment")))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device")
@pytest.mark.parametrize("augmentation", ALL)
def test_augmentation_on_a_gpu_gives_the_bits_of_the_cpu(augmentation: Augmentation) -> None:
    x = images((6, 10, 10, 3))
    on_gpu = augmentation(x.cuda(), stream(0, "augment"))
    assert on_gpu.is_cuda
    assert torch.equal(on_gpu.cpu(), augmentation(x, stream(0, "augment")))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "crop",
            {"padding": 0},
            r"data\.augment: 'crop' with padding 0 leaves images as they are; set size",
        ),
    ],
)
def test_a_bad_option_is_named_by_key(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        call_with_options(augmentations.resolve(name), options, {}, "data.augment.0")


def test_reflecting_further_than_the_image_is_an_error_that_names_both_sizes() -> None:
    with pytest.raises(ScenarioError, match="needs images larger than 4 pixels, these are 4 x 8"):
        Crop(4, "reflect")(torch.zeros(2, 4, 8, 1), stream(0, "augment"))


@pytest.mark.parametrize("augmentation", [Crop(fill=(0.1, 0.2)), Rotate(fill=())])
def test_a_fill_that_does_not_fit_the_channels_is_an_error_that_names_both(augmentation: Crop | Rotate) -> None:
    with pytest.raises(ScenarioError, match=rf"fill has {len(augmentation.fill)} values, but images have 3 channels"):
        augmentation(torch.zeros(2, 8, 8, 3), stream(0, "augment"))
