"""Errors about inputs that look like images in another layout say how to convert them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.config.scenario import Scenario
from rayfl.data.checks import how_to_make_images
from rayfl.data.inputs import Ragged
from rayfl.errors import ScenarioError
from rayfl.runs.preparation import prepare

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 32, 30, 3), np.uint8)
FIRST = PIXELS.transpose(0, 3, 1, 2)
SCALED = (PIXELS / 255).astype(np.float32)

HALVES = {"mean": [0.5] * 3, "std": [0.5] * 3}
GIVEN: dict[str, Any] = {}


def images() -> Any:
    x, y = GIVEN["x"], np.arange(20) % 2
    return x, y, x[:4], y[:4]


class OwnNetwork(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes)
        )

    def forward(self, x: Any) -> Any:
        return self.layers(x)


class Table(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(30, num_classes)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


class Broken(OwnNetwork):
    def forward(self, x: Any) -> Any:
        return super().forward(x)[0]["oops"]


def prepared(x: np.ndarray, folder: Path, model: str = "lenet5", **data: Any) -> None:
    GIVEN["x"] = x
    phases = [{"name": "p", "rounds": 1, "cohort": 1}]
    tables = {"data": {"name": f"{__name__}:images", "clients": 2} | data, "model": model, "phases": phases}
    prepare(Scenario.from_tables(tables), folder)


@pytest.mark.parametrize(
    "x",
    [FIRST, SCALED, SCALED.transpose(0, 3, 1, 2), PIXELS.astype(np.float64), FIRST.astype(np.int64)],
    ids=["uint8 first", "float last", "float first", "0 to 255", "int64 first"],
)
def test_the_suggested_code_makes_images(x: np.ndarray) -> None:
    said = how_to_make_images(x)
    assert said.startswith("; these look like images [n, ")
    made = eval(said.partition("write x = ")[2], {"x": x})  # noqa: S307 - code of this test
    assert made.dtype == np.uint8
    assert np.array_equal(made, PIXELS)


@pytest.mark.parametrize(
    "x",
    [
        PIXELS.astype(np.uint16) * 250,
        PIXELS.astype(np.int32) * 250,
        PIXELS.astype(np.uint16) * 16,  # 12 bits, as of X-rays
        PIXELS.astype(np.float32) * 250,
        PIXELS.astype(np.int16) * 10 - 1000,  # as Hounsfield units
    ],
    ids=["uint16", "int32", "12 bits", "float", "negative"],
)
def test_the_suggested_code_never_wraps_wider_values(x: np.ndarray) -> None:
    code = how_to_make_images(x).partition("write x = ")[2]
    made = eval(code.partition(" for pixels")[0], {"x": x, "LOW": x.min(), "HIGH": x.max()})  # noqa: S307
    assert made.dtype == np.uint8
    in_order = made.ravel()[np.argsort(x, axis=None)].astype(int)
    assert (np.diff(in_order) >= 0).all()
    assert in_order[-1] - in_order[0] >= 240


@pytest.mark.parametrize("channels", [2, 6, 13])
def test_square_images_of_many_channels_come_with_the_channels_last(channels: int) -> None:
    x = np.zeros((4, channels, 16, 16), np.uint8)
    assert how_to_make_images(x).endswith("images [n, channels, height, width]: write x = x.transpose(0, 2, 3, 1)")
    assert how_to_make_images(x.transpose(0, 2, 3, 1)) == ""


@pytest.mark.parametrize("dtype", [np.uint16, np.int16, np.uint32, np.uint8])
def test_measurements_as_integers_get_a_remedy(dtype: Any, tmp_path: Path) -> None:
    x = (np.arange(600).reshape(20, 30) % 200).astype(dtype)
    with pytest.raises(ScenarioError, match=r"int64: give measurements as x\.astype\('float32'\)\n"):
        prepared(x, tmp_path, f"{__name__}:Table")


@pytest.mark.parametrize(
    "x", [PIXELS, SCALED[:, 0], np.zeros((5, 3, 8, 3)), np.zeros((5, 8, 8, 8)), Ragged.of([SCALED[0], SCALED[1, :5]])]
)
def test_images_and_other_inputs_get_no_suggestion(x: Any) -> None:
    assert how_to_make_images(x) == ""


def test_a_board_of_many_channels_is_an_image(tmp_path: Path) -> None:
    board = np.zeros((20, 3, 3, 12), np.uint8)
    with pytest.raises(ScenarioError, match=r"expected input\[2, 12, 3, 3\] to have 3 channels, but got 12"):
        prepared(board, tmp_path, f"{__name__}:OwnNetwork")


def test_a_collation_of_your_own_gets_channels_first(tmp_path: Path) -> None:
    prepared(FIRST, tmp_path, f"{__name__}:OwnNetwork", collate=f"{__name__}:scaled")


def scaled(pieces: Any) -> Any:
    assert pieces[0].shape == (3, 32, 30)
    return torch.from_numpy(np.stack(pieces)) / 255


def test_normalised_values_must_be_scaled_back() -> None:
    assert how_to_make_images(SCALED - 0.5).endswith("after undoing their normalisation")


FLOATS = r"write x = \(255 \* x\)\.round\(\)\.astype\('uint8'\)"
FLOATS_FIRST = rf"images \[n, channels, height, width\]: {FLOATS}\.transpose\(0, 2, 3, 1\)"


@pytest.mark.parametrize(
    ("x", "data", "message"),
    [
        (SCALED.transpose(0, 3, 1, 2), {"augment": ["flip"]}, rf"data\.augment\.0: 'flip' .*{FLOATS_FIRST}"),
        (SCALED, {"normalize": HALVES}, rf"data\.normalize is for images, .* unchanged \(.*images \[n, .*{FLOATS}$"),
        (
            FIRST,
            {},
            r"data\.name: images must be \[n, height, width, channels\] .*write x = x\.transpose\(0, 2, 3, 1\)$",
        ),
        (SCALED.transpose(0, 3, 1, 2), {}, rf"model 'lenet5': takes images .*{FLOATS_FIRST}"),
        (SCALED, {}, rf"a batch of inputs \[2, 32, 30, 3\] raised RuntimeError: .*{FLOATS}\n"),
        (FIRST[:, :1], {"model": f"{__name__}:OwnNetwork"}, r"data\.name: images must be .*\.transpose\(0, 2, 3, 1\)$"),
    ],
)
def test_every_error_about_them_suggests_code(
    x: np.ndarray, data: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError, match=message):
        prepared(x, tmp_path, **data)


def test_a_network_may_take_them_unchanged_and_its_errors_are_reported_as_its_own(tmp_path: Path) -> None:
    channels_first = SCALED.transpose(0, 3, 1, 2)
    prepared(channels_first, tmp_path, f"{__name__}:OwnNetwork")
    with pytest.raises(ScenarioError, match=r"raised IndexError") as caught:
        prepared(channels_first, tmp_path, f"{__name__}:Broken")
    assert "look like images" not in str(caught.value)
