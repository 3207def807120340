"""Random resized crops equal those of torchvision for the same part, and parts satisfy the options."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms import functional

from rayfl.data.augmentation.augmentation import Compose
from rayfl.data.augmentation.resized_crop import ResizedCrop
from rayfl.errors import ScenarioError
from rayfl.streams import stream

SHAPES = [(20, 64, 64, 3), (20, 12, 9, 3), (20, 9, 30, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_each_image_is_the_drawn_part_scaled_as_torchvision_does(shape: tuple[int, int, int, int]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    draws = ResizedCrop().draw(shape, stream(0, "augment"))
    found = ResizedCrop()(x, stream(0, "augment"))
    assert found.is_contiguous()
    for image, after, part in zip(x, found, draws.T.astype(int).tolist(), strict=True):
        expected = functional.resized_crop(image.permute(2, 0, 1), *part, list(shape[1:3]), antialias=True)
        torch.testing.assert_close(after, expected.permute(1, 2, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [None, 7, (40, 20)])
def test_every_interpolation_and_size_matches_torchvision(
    size: int | tuple[int, int] | None, interpolation: str, antialias: bool
) -> None:
    crop = ResizedCrop(size=size, interpolation=interpolation, antialias=antialias)  # type: ignore[arg-type]
    x = torch.rand((30, 24, 18, 3), generator=torch.Generator().manual_seed(0))
    draws = crop.draw((30, 24, 18, 3), stream(0, "augment"))
    found = crop(x, stream(0, "augment"))
    wanted = {None: (24, 18), 7: (7, 7)}.get(size, size)  # type: ignore[arg-type]
    assert crop.output_size(24, 18) == wanted
    for image, after, part in zip(x, found, draws.T.astype(int).tolist(), strict=True):
        mode = functional.InterpolationMode(interpolation)
        expected = functional.resized_crop(image.permute(2, 0, 1), *part, list(wanted), mode, antialias)
        torch.testing.assert_close(after, expected.permute(1, 2, 0), rtol=1e-4, atol=1e-5)


def test_later_steps_draw_for_images_of_the_new_size() -> None:
    both = Compose((ResizedCrop(size=(8, 4)), ResizedCrop((0.5, 1.0))))
    x = torch.rand((50, 24, 18, 3), generator=torch.Generator().manual_seed(0))
    _, _, high, wide = both.draw((50, 24, 18, 3), stream(0, "augment"))[4:]
    assert high.max() <= 8
    assert wide.max() <= 4
    assert both(x, stream(0, "augment")).shape == (50, 8, 4, 3)


def test_bicubic_pixels_do_not_wrap_around() -> None:
    x = torch.zeros((1, 16, 16, 1), dtype=torch.uint8)
    x[:, 4:12, 4:12] = 255
    crop = ResizedCrop((1, 1), (1, 1), size=37, interpolation="bicubic")
    found = crop(x, stream(0, "augment"))
    exact = crop(x.float(), stream(0, "augment"))
    assert exact.min() < 0
    assert exact.max() > 255
    assert (found.float() - exact.clamp(0, 255)).abs().max() <= 0.5


def test_pixels_stay_pixels() -> None:
    x = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), np.uint8))
    found = ResizedCrop()(x, stream(0, "augment"))
    assert found.dtype == torch.uint8
    exact = ResizedCrop()(x.float(), stream(0, "augment"))
    assert (found.float() - exact).abs().max() <= 0.5


@pytest.mark.parametrize("shape", SHAPES[:2])
def test_parts_lie_in_the_image_and_have_the_shares_and_ratios_asked_for(shape: tuple[int, int, int, int]) -> None:
    _, height, width, _ = shape
    top, left, high, wide = ResizedCrop((0.3, 0.5), (0.5, 2)).draw((4000, *shape[1:]), stream(0, "augment"))
    assert top.min() == left.min() == 0
    assert (top + high).max() == height
    assert (left + wide).max() == width
    share = high * wide / (height * width)
    rounding = (high + wide) / (height * width)
    assert ((share > 0.3 - rounding) & (share < 0.5 + rounding)).all()
    assert abs(share.mean() - 0.4) < 0.03
    assert ((wide + 1) / (high - 1) > 0.5).all()
    assert ((wide - 1) / (high + 1) < 2).all()


def test_if_no_proposal_fits_the_largest_central_part_of_an_allowed_ratio_is_used() -> None:
    top, left, high, wide = ResizedCrop((1, 1), (1, 1)).draw((5, 9, 30, 1), stream(0, "augment"))
    assert {*high, *wide} == {9.0}
    assert {*top} == {0.0}
    assert {*left} == {11.0}


def test_the_whole_image_stays_unchanged() -> None:
    x = torch.randn((3, 8, 8, 3), generator=torch.Generator().manual_seed(0))
    assert torch.equal(ResizedCrop((1, 1), (1, 1))(x, stream(0, "augment")), x)


def test_a_reversed_range_raises() -> None:
    with pytest.raises(ScenarioError, match=r"scale goes from 1 to 0\.5; give the smallest first"):
        ResizedCrop((1, 0.5))
