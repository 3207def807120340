"""Label maps follow their images through every augmentation that moves pixels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rayfl.config.data import Data
from rayfl.config.scenario import Scenario
from rayfl.data import Augmentation, Dataset, Provenance, Samples
from rayfl.data.augmentation.resized_crop import ResizedCrop
from rayfl.data.batches import BatchSource
from rayfl.data.store import build_store
from rayfl.errors import ScenarioError
from rayfl.runs.preparation import prepare
from rayfl.streams import stream
from rayfl.tasks.supervised import Segmentation
from tests.engine.scenes import run_on_hosts

CPU, HERE = torch.device("cpu"), "tests.data.augmentation.test_label_maps"
IGNORED = 255


def maps() -> Dataset:
    """Images of two channels: the class of each pixel, 1 to 19, which is also its label, and its position."""
    rng = np.random.default_rng(0)
    parts = []
    for n in (12, 6):
        y = rng.integers(1, 20, (n, 10, 10)).astype(np.uint8)
        place = np.broadcast_to(np.arange(100, dtype=np.uint8).reshape(10, 10) + 100, y.shape)
        parts.append(Samples(np.stack([y, place, y], axis=3), y))
    train, test = parts
    return Dataset("maps", train, test, num_classes=20, provenance=Provenance("generated", "classes as colours"))


def small_maps() -> Dataset:
    data = maps()
    train, test = (Samples(part.x, part.y[:, ::2, ::2]) for part in (data.train, data.test))
    return Dataset("maps", train, test, 20, data.provenance)


def numbers() -> Dataset:
    data = maps()
    train, test = (Samples(part.x, part.y.astype(np.float32)) for part in (data.train, data.test))
    return Dataset("maps", train, test, None, data.provenance)


class Brighter(Augmentation):
    """Changes colours and says so."""

    @property
    def moves_pixels(self) -> bool:
        return False

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        return rng.random((1, shape[0]))

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return x + draws[0, :, None, None, None].float()


class Shifted(Augmentation):
    """Moves pixels, but does not define how labels follow."""

    def draw(self, shape: tuple[int, int, int, int], rng: np.random.Generator) -> np.ndarray:
        return rng.random((1, shape[0]))

    def apply(self, x: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return x.roll(1, 1)


def noisy(x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    return x + float(rng.random())


def batch(augment: list[Any], folder: Path, data: str = "maps") -> tuple[torch.Tensor, torch.Tensor]:
    """The colours [n, height, width, channels] and labels of the augmented training samples."""
    config = Data.model_validate({"name": f"{HERE}:{data}", "clients": 2, "partition": "iid", "augment": augment})
    source = BatchSource(build_store(config, 0, folder, folder), CPU, ignored_label=IGNORED)
    ((x, y),) = source.training_batches(np.arange(12), 12, stream(0, "augment"))
    return (x.permute(0, 2, 3, 1) * 255).round().long(), y


@pytest.mark.parametrize(
    "augment",
    [
        ["flip"],
        ["crop"],
        [{"name": "crop", "padding": 3, "mode": "reflect", "per": "batch"}],
        [{"name": "crop", "padding": 0, "size": [4, 7]}],
        [{"name": "rotate", "degrees": 40}],
        ["quarter_turn"],
        ["feddyn_cifar", {"name": "crop", "padding": 1, "size": 8}, "quarter_turn"],
        ["solarize", "flip"],
    ],
    ids=str,
)
def test_every_pixel_keeps_its_label(augment: list[Any], tmp_path: Path) -> None:
    x, y = batch(augment, tmp_path)
    assert y.dtype == torch.int64
    colours, places = x[..., 2], x[..., 1]
    if augment[0] == "solarize":
        colours = torch.where(colours > 127, 255 - colours, colours)
    expected = torch.where(places == 0, IGNORED, colours)
    assert torch.equal(y, expected)
    untouched, _ = batch([], tmp_path)
    assert x.shape != untouched.shape or not torch.equal(x, untouched)


def test_autoaugment_moves_labels_where_it_moves_pixels(tmp_path: Path) -> None:
    """Only moved labels differ; a moved map matches its image and is ignored where pixels have no source."""
    _, plain = batch([], tmp_path)
    _, moved = batch(["autoaugment_cifar10"], tmp_path)
    still = (moved == plain).flatten(1).all(dim=1)
    assert 0 < still.sum() < 12
    assert (moved == IGNORED).any()


@pytest.mark.parametrize("size", [None, 7, (23, 5)])
def test_resized_crops_give_pixels_the_label_at_their_centre(size: int | tuple[int, int] | None) -> None:
    crop = ResizedCrop(size=size)
    y = torch.from_numpy(np.random.default_rng(0).integers(0, 20, (40, 14, 11)))
    draws = torch.from_numpy(crop.draw((40, 14, 11, 3), stream(0, "augment")))
    found = crop.move_labels(y, draws, None)
    wanted = crop.output_size(14, 11)
    for before, after, (top, left, high, wide) in zip(y, found, draws.T.long().tolist(), strict=True):
        part = before[top : top + high, left : left + wide].double()[None, None]
        assert torch.equal(after, F.interpolate(part, wanted, mode="nearest-exact")[0, 0].long())


def test_labels_that_are_numbers_move_too(tmp_path: Path) -> None:
    x, y = batch(["flip", "quarter_turn"], tmp_path, "numbers")
    assert torch.equal(y, x[..., 0].float())


def test_an_augmentation_that_says_it_moves_nothing_leaves_labels(tmp_path: Path) -> None:
    _, y = batch([f"{HERE}:Brighter"], tmp_path)
    assert torch.equal(y, batch([], tmp_path)[1])


@pytest.mark.parametrize(
    ("augment", "data", "message"),
    [
        ([f"{HERE}:Shifted"], "maps", r"data\.augment\.0: '.*Shifted' may move pixels but cannot move label maps"),
        (["flip", f"{HERE}:noisy"], "maps", r"data\.augment\.1: '.*noisy' may move pixels but cannot move label maps"),
        (["flip"], "small_maps", r"'flip' moves pixels, but labels \[5, 5\] are not maps of images \[10, 10\]"),
        ([{"name": "crop", "padding": 0}], "maps", r"'crop' with padding 0 leaves images as they are"),
        ([{"name": "crop", "padding": 1, "size": 13}], "maps", r"cannot cut 13 x 13 pixels from images of 10 x 10"),
    ],
)
def test_augmentations_that_would_separate_labels_from_pixels_raise(
    augment: list[Any], data: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError, match=message):
        batch(augment, tmp_path, data)


class PixelClasses(torch.nn.Module):
    def __init__(self, num_classes: int, smallest: int = 0) -> None:
        super().__init__()
        self.layer, self.smallest = torch.nn.Conv2d(3, num_classes, 1), smallest

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[2] < self.smallest:
            raise ValueError(f"{x.shape[2]} pixels are too few")
        found: torch.Tensor = self.layer(x)
        return found


class EveryPixel(Segmentation):
    """Has a label for every pixel, but none to ignore."""

    @property
    def ignored_label(self) -> int | None:
        return None


def tables(**changes: Any) -> dict[str, Any]:
    return {
        "data": {"name": f"{HERE}:maps", "clients": 2, "partition": "iid", "augment": changes["augment"]},
        "model": {"name": f"{HERE}:PixelClasses", "smallest": changes.get("smallest", 0)},
        "task": changes.get("task", "segmentation"),
        "phases": [{"name": "federated", "rounds": 1, "cohort": 2, "local": {"epochs": 1, "lr": 0.1}}],
    }


def test_a_network_is_tried_on_the_sizes_that_it_trains_on(tmp_path: Path) -> None:
    smaller = [{"name": "crop", "padding": 0, "size": 6}]
    prepare(Scenario.from_tables(tables(augment=smaller)), tmp_path)
    prepare(Scenario.from_tables(tables(augment=["crop"], smallest=10)), tmp_path)
    message = r"PixelClasses' on maps, augmented: .*\[2, 3, 6, 6\].*6 pixels are too few"
    with pytest.raises(ScenarioError, match=message):
        prepare(Scenario.from_tables(tables(augment=smaller, smallest=10)), tmp_path)


def test_uncovered_pixels_are_ignored_or_raise_if_the_task_ignores_no_label(tmp_path: Path) -> None:
    job, _ = prepare(Scenario.from_tables(tables(augment=["crop", "rotate"])), tmp_path)
    run_on_hosts(job, 1)
    with pytest.raises(
        ScenarioError, match="'crop' uncovers pixels that have no label, but the task has no ignored label"
    ):
        prepare(Scenario.from_tables(tables(augment=["crop"], task=f"{HERE}:EveryPixel")), tmp_path)
