"""The scenes: small scenarios that together use every schedule, both kinds of privacy, and all kinds of state.

Also their data and networks, which scenarios name by `scenes:...`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from rayfl.data import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.models import Network

SIZES = (5, 9, 14, 7, 16, 6, 11, 8, 13, 10, 12, 4)
LOCAL = {"epochs": 1, "batch_size": 4, "lr": 0.1}
LONG = LOCAL | {"epochs": 2, "momentum": 0.5, "lr_decay": 0.9, "weight_decay": 0.01, "clip_norm": 1.0}
RELAY = {"name": "cyclic", "schedule": "relay", "rounds": 3, "cohort": 4, "local": {"steps": 3, "lr": 0.1}}
DEVICES = {"steps_per_s": {"lognormal": [20.0, 0.6]}, "down_bytes_per_s": {"uniform": [500, 5000]}, "dropout": 0.1}
SAMPLE_DP = LOCAL | {"dp": {"noise_multiplier": 1.5, "max_grad_norm": 0.5, "max_epsilon": 7.0, "accountant": "rdp"}}
CENTRAL_DP = {"level": "central", "noise_multiplier": 1.0, "clip_norm": {"quantile": 0.5}, "delta": 0.01}
LOCAL_DP = {"level": "local", "noise_multiplier": 1.0, "clip_norm": 0.5, "delta": 0.01}
IMAGES = {"name": "scenes:images", "normalize": {"mean": [0.5, 0.5], "std": [0.25, 0.25]}}
VIEWS = [{"augment": ["flip"]}, {"augment": [{"name": "crop", "padding": 1}]}, {}]


def federated(algorithm: Any = "fedavg", rounds: int = 3, cohort: Any = 5, local: Any = LOCAL, **more: Any) -> Any:
    """A phase, by default of the schedule `parallel`."""
    return {"name": "federated", "algorithm": algorithm, "rounds": rounds, "local": local, "cohort": cohort} | more


def scene(*phases: Any, **tables: Any) -> dict[str, Any]:
    """A scenario whose rounds are all evaluated and all leave a checkpoint."""
    common = {
        "seed": 7,
        "data": {"name": "scenes:people"},
        "model": "scenes:Dense",
        "evaluation": {"per_client": True},
        "checkpoint": {"rounds": 1},
        "resources": {"hosts": 2, "relay": "spread"},
    }
    return common | tables | {"phases": list(phases)}


SCENES: dict[str, dict[str, Any]] = {
    "plain": scene(federated(rounds=1)),
    "relay": scene(RELAY | {"order": "no_repeat", "algorithm": "moon"}, federated(local=LONG)),
    "relay_packed": scene(RELAY, resources={"hosts": 2, "relay": "packed"}),
    "unfreezing": scene(
        federated({"name": "fedprox", "mu": 0.1}, local=LONG | {"unfreeze": {"share": 0.6}}, cohort={"bernoulli": 0.4}),
        federated(rounds=1, cohort={"by_size": 3}, name="head", train="head"),
        evaluation={"every": 2},
    ),
    "central": scene(
        {"name": "central", "schedule": "central", "keep_momentum": True, "rounds": 2, "local": LONG},
        federated(cohort=0.5, local=LOCAL | {"optimizer": "adamw"}, server_training={"steps": 2, "lr": 0.02}),
        data={"name": "scenes:people", "server_share": 0.2},
    ),
    "local": scene(
        {"name": "local", "schedule": "local", "rounds": 2, "local": LOCAL},
        federated("ditto"),
        evaluation={"client_model": "personal", "over_clients": ["mean", "variance", "lowest_20"]},
    ),
    "asynchronous": scene(
        federated("fedavg", 5, 12, schedule="buffered", concurrency=4, buffer=2),
        federated("fedprox", 4, 12, name="mixed", schedule="asynchronous", concurrency=3),
        participation=DEVICES | {"dropout": 0.2},
    ),
    "participation": scene(
        RELAY,
        federated("feddyn", 4, 4, LONG, over_selection=1.5, deadline_s=2.0, quorum=2),
        participation=DEVICES | {"up_bytes_per_s": {"kinds": [300, 3000]}, "availability": 0.8, "compute_watts": 3.0},
    ),
    "scaffold": scene(federated("scaffold", 4, local=LONG | {"epochs": {"uniform": [1, 3]}}, eval_model="all")),
    "coprefl": scene(
        federated({"name": "coprefl", "gamma": 0.5}, 4),
        data={"name": "scenes:people", "server_share": 0.1},
        evaluation={"over_clients": ["pooled_mean", "pooled_variance"]},
    ),
    "orchestra": scene(
        federated({"name": "orchestra", "local_clusters": 4, "stateful": True}, cohort=4, local=LOCAL | {"lr": 0.01}),
        data=IMAGES | {"views": VIEWS},
        model={"name": "orchestra", "network": "scenes:Convolutional", "width": 16, "clusters": 8},
        task={"name": "orchestra", "memory": 16},
        evaluation={"metrics": ["spread", "knn"], "bank": 40},
    ),
    "batch_norm": scene(
        federated("fedbn", 4, 4, LONG),
        data=IMAGES | {"augment": ["flip"]},
        model="scenes:Convolutional",
    ),
    "sample_privacy": scene(RELAY | {"local": SAMPLE_DP}, federated("scaffold", local=SAMPLE_DP)),
    "client_privacy": scene(
        federated({"name": "fedadam", "weighting": "uniform"}, cohort={"bernoulli": 0.4}, dp=CENTRAL_DP)
    ),
    "client_privacy_local": scene(federated({"name": "fedavg", "weighting": "uniform"}, dp=LOCAL_DP)),
    "choosing": scene(
        federated("fedexp", cohort={"sampler": "power_of_choice", "clients": 3, "candidates": 6}, transforms=["top_k"]),
        federated({"name": "fedavg", "aggregation": "median", "weighting": "uniform"}, name="robust"),
    ),
    "starts_second": scene(federated(rounds=1), start={"scenario": "relay"}),
    "starts": scene(
        federated("fedbabu", 2),
        start={"scenario": "starts_second", "head": "fresh", "overrides": {"phases.federated.local.lr": 0.05}},
        evaluation={"personalize": LOCAL},
    ),
}
STATEFUL = ("asynchronous", "batch_norm", "client_privacy", "coprefl", "local", "orchestra", "relay", "scaffold")
"""Scenes with state of clients, server, task, schedule or privacy; a stop after each round must not show in them."""


def people() -> Dataset:
    """Points in four dimensions of twelve clients, each of which labels them in its own way."""
    rng, clients = np.random.default_rng(3), len(SIZES)
    taste = rng.normal(size=(clients, 4, 3))
    owners = np.repeat(np.arange(clients), SIZES), np.repeat(np.arange(clients), 3)
    points = [rng.normal(size=(len(owner), 4)).astype(np.float32) for owner in owners]
    labels = [np.einsum("ni,nic->nc", x, taste[owner]).argmax(axis=1) for x, owner in zip(points, owners, strict=True)]
    natural = NaturalClients(tuple(map(str, range(clients))), *(Shards.by_owner(owner, clients) for owner in owners))
    samples = [Samples(x, y) for x, y in zip(points, labels, strict=True)]
    return Dataset("people", samples[0], samples[1], 3, Provenance("arrays", "drawn"), natural)


def images() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Noise of 8 x 8 pixels in two colours, of six clients; the brightest third decides the class."""
    x = np.random.default_rng(5).integers(0, 256, (90, 8, 8, 2), dtype=np.uint8)
    y, owner = x[:, :6].reshape(90, 3, -1).astype(np.int64).sum(axis=2).argmax(axis=1), np.arange(90) % 6
    return {"train": (x[:66], y[:66], owner[:66]), "test": (x[66:], y[66:], owner[66:])}


class Dense(Network):
    """Three dense layers, with dropout."""

    ordered_modules: tuple[str, ...] = ("first", "second", "read_out")
    feature_layer = "read_out"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.first, self.second, self.read_out = nn.Linear(4, 7), nn.Linear(7, 5), nn.Linear(5, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.second(torch.tanh(self.first(x))))
        logits: torch.Tensor = self.read_out(nn.functional.dropout(hidden, 0.2, self.training))
        return logits


class Convolutional(Network):
    """A convolution with batch norm, and a dense layer."""

    ordered_modules: tuple[str, ...] = ("convolution", "norm", "read_out")
    feature_layer = "read_out"

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.convolution, self.norm, self.read_out = nn.Conv2d(2, 5, 3), nn.BatchNorm2d(5), nn.Linear(45, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = torch.relu(self.norm(self.convolution(x)))
        logits: torch.Tensor = self.read_out(nn.functional.max_pool2d(maps, 2).flatten(1))
        return logits
