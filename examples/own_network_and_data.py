"""Your own network and your own arrays, without registering anything or forking rayfl.

    python examples/own_network_and_data.py            # in this process, a few seconds
    python examples/own_network_and_data.py ray        # on Ray, with bit-identical results

A scenario names your code by import path, `module:object`. The path of this module is `own_network_and_data`, because
Python finds modules in the folder of the script. Worker processes import the module again under that name, so the run
itself must be under `if __name__ == "__main__"`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch import nn

import rayfl

CLASSES = 3


def spirals(points: int = 2000, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns (train_x, train_y, test_x, test_y): x [n, 2] float, y [n] integers from 0; here three arms of a spiral.

    Images would be [n, height, width, channels] uint8. The arguments come from `data.options` in the scenario.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, points)
    radius = rng.uniform(0.1, 1, points)
    angle = 2 * np.pi * labels / CLASSES + 4 * radius + noise * rng.normal(size=points)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    train = points * 4 // 5
    return x[:train], labels[:train], x[train:], labels[train:]


class Perceptron(nn.Module):
    """Any nn.Module. `num_classes` and `input_shape` come from the data, `hidden` from the scenario."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...], hidden: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(input_shape[0], hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, num_classes),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(x)
        return logits


LOCAL = {"lr": 0.3, "batch_size": 16}
SCENARIO: dict[str, Any] = {
    "name": "own_network_and_data",
    "title": "Spirals: cyclic pre-training, then FedAvg",
    "data": {
        "name": "own_network_and_data:spirals",
        "options": {"noise": 0.05},
        "clients": 20,
        "partition": {"name": "dirichlet", "beta": 0.5},
    },
    "model": {"name": "own_network_and_data:Perceptron", "hidden": 48},
    "phases": [
        {"name": "cyclic", "schedule": "relay", "rounds": 10, "cohort": 0.25, "local": LOCAL},
        {"name": "federated", "rounds": 20, "cohort": 0.5, "local": {**LOCAL, "epochs": 5}},
    ],
    "evaluation": {"every": 5},
}


def main(backend: str = "inline", *overrides: str) -> rayfl.Result:
    """Runs the scenario; overrides such as `seed=1` replace its values.

    The result holds metrics (an Arrow table), the trained weights, and the folder of the records.
    """
    result = rayfl.run(SCENARIO, overrides=overrides, backend="ray" if backend == "ray" else "inline")
    network = Perceptron(CLASSES, (2,), hidden=48)
    network.load_state_dict(result.state_dict)
    _, _, x, y = spirals(noise=0.05)
    with torch.no_grad():
        predicted = network(torch.from_numpy(x).float()).argmax(dim=1).numpy()
    print(f"the trained network in plain PyTorch: {np.mean(predicted == y):.1%} correct")
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
