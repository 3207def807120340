"""The scenario's network: its kernels, networks of other libraries, and what is said of outputs of a wrong width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

import rayfl
from rayfl.config.loader import load_scenario
from rayfl.data.files import cache_folder
from rayfl.data.store import ShardStore, build_store
from rayfl.engine.initial_model import build_network
from rayfl.engine.plan.network_trial import build_checked
from rayfl.errors import ScenarioError
from rayfl.models.fast_kernels import NarrowConv2d
from rayfl.tasks.supervised import Classification

CLASSES = 3


def colours(rows: int = 24) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(train_x, train_y, test_x, test_y): noise of 32 x 32 pixels in which one channel, the class, is brighter."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, CLASSES, 2 * rows)
    x = rng.integers(0, 128, (2 * rows, 32, 32, CLASSES), dtype=np.uint8)
    x[np.arange(2 * rows), :, :, y] += 100
    return x[:rows], y[:rows], x[rows:], y[rows:]


class TooWide(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(3 * 32 * 32, num_classes + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.fc(x.flatten(1))
        return logits


class Broken(TooWide):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("no such layer")


class Leaving(TooWide):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise SystemExit(4)


def tables(model: Any, **sections: Any) -> dict[str, Any]:
    phase = {"name": "federated", "rounds": 1, "cohort": 2, "local": {"steps": 2, "batch_size": 4, "lr": 0.01}}
    data = {"name": f"{__name__}:colours", "clients": 3}
    return {"name": "colours", "data": data, "model": model, "phases": [phase], **sections}


def built(model: Any, **sections: Any) -> tuple[Any, Any, ShardStore]:
    scenario = load_scenario(tables(model, **sections))
    return scenario, scenario.model, build_store(scenario.data, scenario.seed, Path(), cache_folder())


def refusal(model: Any) -> str:
    scenario, _, store = built(model)
    with pytest.raises(ScenarioError) as caught:
        build_checked(scenario, scenario.phases[0], store, Classification)
    return str(caught.value)


@pytest.mark.parametrize("kernels", [None, "fast", "plain"])
def test_kernels_are_fast_unless_plain_ones_are_asked_for(kernels: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    network = build_network(*built("lenet5", **({"numerics": {"kernels": kernels}} if kernels else {})), CLASSES)
    convolutions = [type(layer) for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    assert convolutions == [nn.Conv2d if kernels == "plain" else NarrowConv2d, nn.Conv2d]


def test_a_network_of_torchvision_trains_on_images_of_three_channels(tmp_path: Path) -> None:
    model = {"name": "torchvision.models:mobilenet_v3_small", "num_classes": CLASSES, "dropout": 0.1}
    result = rayfl.run(tables(model), backend="inline", out=tmp_path, data_dir=tmp_path, console=Console(quiet=True))
    assert result.metrics.num_rows == 1
    assert result.state_dict["classifier.3.weight"].shape == (CLASSES, 1024)


MOBILENET = "torchvision.models:mobilenet_v3_small"


@pytest.mark.parametrize("options", [{}, {"num_classes": 5}])
def test_an_output_of_another_width_comes_with_the_option_that_sets_it(options: dict[str, Any]) -> None:
    width = options.get("num_classes", 1000)
    assert refusal({"name": MOBILENET, **options}) == (
        f"model '{MOBILENET}' on {__name__}:colours: 2 inputs give an output of shape [2, {width}], not [2, 3]; "
        "set model.num_classes = 3"
    )


def test_a_network_that_was_told_the_number_of_classes_gets_no_such_hint() -> None:
    assert refusal(f"{__name__}:TooWide").endswith("2 inputs give an output of shape [2, 4], not [2, 3]")


def test_an_error_of_a_network_on_the_first_batch_is_shown_with_the_traceback_of_its_code() -> None:
    first, header, *rest = refusal(f"{__name__}:Broken").splitlines()
    batch = f"model '{__name__}:Broken' on {__name__}:colours: a batch of inputs [2, 3, 32, 32]"
    assert first == f"{batch} raised KeyError: 'no such layer'"
    assert header == "Traceback (most recent call last):"
    assert rest[-1] == "KeyError: 'no such layer'"
    assert "rayfl/engine/initial_model.py" not in "".join(rest)


def test_a_network_that_exits_on_the_first_batch_is_told_in_one_line() -> None:
    (line,) = refusal(f"{__name__}:Leaving").splitlines()
    assert line.endswith("tried to exit the process (SystemExit: 4)")


class FreezesItsStem(nn.Module):
    """Its own `train` freezes a part, as backbones of detection libraries do (`frozen_stages`)."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.stem, self.fc = nn.Linear(3 * 32 * 32, 4), nn.Linear(4, num_classes)

    def train(self, mode: bool = True) -> FreezesItsStem:
        super().train(mode)
        self.stem.eval().requires_grad_(False)
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.fc(torch.tanh(self.stem(x.flatten(1))))
        return logits


def test_what_a_networks_own_train_freezes_is_no_parameter_that_trains(tmp_path: Path) -> None:
    scenario, _, store = built(f"{__name__}:FreezesItsStem")
    flat, _ = build_checked(scenario, scenario.phases[0], store, Classification)
    assert flat.num_params == 4 * CLASSES + CLASSES
    phase = {"name": "federated", "rounds": 1, "cohort": 2, "algorithm": "fedmeta", "local": {"lr": 0.01}}
    result = rayfl.run(
        tables(f"{__name__}:FreezesItsStem", phases=[phase]),
        backend="inline", out=tmp_path, data_dir=tmp_path, console=Console(quiet=True),
    )  # fmt: skip
    assert torch.equal(result.state_dict["stem.weight"], flat.state_dict()["stem.weight"])
    assert not torch.equal(result.state_dict["fc.weight"], flat.state_dict()["fc.weight"])
