"""A small federated problem for the tests of algorithms and of local training, and how rayfl is run on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn

from rayfl.algorithms import algorithms
from rayfl.config.scenario import Scenario
from rayfl.data.dataset import Dataset, NaturalClients, Provenance, Samples, Shards
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.models.flat import FlatModel
from rayfl.models.network import Network
from rayfl.runs.preparation import prepare
from rayfl.streams import torch_seed
from tests.engine.scenes import run_on_hosts

SIZES = (5, 9, 14, 7, 16, 6, 11, 8, 13, 10, 12, 4)
INPUTS, FIRST, SECOND, CLASSES = 4, 6, 5, 3
SEED = 11

PARTIAL = ((0, 3, 4), (2, 4, 7, 9), (4, 0, 11), (9, 3))
"""Cohorts: some clients come back, after one round or after several, and some never take part."""

SHORT = ((0, 3, 4), (4, 7), (11, 0))
"""The same with fewer updates: client 4 comes back after one round, client 0 after two."""

EVERYBODY = (tuple(range(len(SIZES))),)


def people(number: int = len(SIZES)) -> Dataset:
    """The first of twelve clients: points in four dimensions, and every client has its own idea of the classes."""
    rng = np.random.default_rng(3)
    taste = rng.normal(size=(len(SIZES), INPUTS, CLASSES))
    owner, test_owner = np.repeat(np.arange(len(SIZES)), SIZES), np.repeat(np.arange(len(SIZES)), 2)
    train, test = (_labelled(rng, owners, taste) for owners in (owner, test_owner))
    train, test = train.take(np.flatnonzero(owner < number)), test.take(np.flatnonzero(test_owner < number))
    owner, test_owner = owner[owner < number], test_owner[test_owner < number]
    shards = NaturalClients(
        tuple(f"person {client}" for client in range(number)),
        Shards.by_owner(owner, number),
        Shards.by_owner(test_owner, number),
    )
    return Dataset("people", train, test, CLASSES, Provenance("arrays", "points"), shards)


def _labelled(rng: np.random.Generator, owners: np.ndarray, taste: np.ndarray) -> Samples:
    x = rng.normal(size=(len(owners), INPUTS)).astype(np.float32)
    return Samples(x, np.einsum("ni,nic->nc", x, taste[owners]).argmax(axis=1))


class TanhNet(Network):
    """Three dense layers with tanh between them.

    loudness: what enters the second tanh is multiplied by it in training mode, so that the modes can be told apart.
    """

    ordered_modules: tuple[str, ...] = ("first", "second", "read_out")
    feature_layer = "read_out"
    groupings = {"halves": (("first",), ("second", "read_out"))}  # noqa: RUF012

    def __init__(self, num_classes: int, loudness: float = 1.0, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, FIRST)
        self.second = nn.Linear(FIRST, SECOND)
        self.read_out = nn.Linear(SECOND, num_classes)
        self.loudness, self.dropout = loudness, nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loudness = self.loudness if self.training else 1.0
        features = torch.tanh(loudness * self.second(torch.tanh(self.first(x))))
        logits: torch.Tensor = self.read_out(self.dropout(features))
        return logits


@dataclass(frozen=True)
class Setting:
    """Who trains and how, for rayfl and for the reference alike.

    cohorts: clients by round, repeated in order. local: of the phase, in rayfl's words.
    """

    cohorts: Sequence[Sequence[int]] = SHORT
    rounds: int = len(SHORT)
    local: Mapping[str, Any] = field(default_factory=dict)
    clients: int = len(SIZES)
    loudness: float = 1.0

    def with_local(self, **local: Any) -> Setting:
        return replace(self, local={**self.local, **local})

    def initial(self) -> torch.Tensor:
        """float64 [parameters]: what both start from."""
        with torch.random.fork_rng():
            torch.manual_seed(torch_seed(SEED, "initial"))
            return torch.cat([p.detach().flatten() for p in TanhNet(CLASSES).parameters()]).double()


USUAL: dict[str, Any] = {"epochs": 2, "batch_size": 6, "lr": 0.3, "lr_decay": 0.9}
"""Clients take from 2 to 6 steps, for their sizes differ."""

PLAIN = Setting(local=USUAL)
EVERYTHING = PLAIN.with_local(momentum=0.6, weight_decay=0.02, clip_norm=0.4)
"""Clipping acts in most steps."""
LOUD = replace(PLAIN, loudness=1.7)
"""The network behaves otherwise in training than in evaluation mode."""
FULL = Setting(EVERYBODY, rounds=2, local=USUAL)
FOUR_ROUNDS = Setting(PARTIAL, rounds=4, local=USUAL)
RATE = Setting(local={"lr": 0.3, "lr_decay": 0.9})
"""For clients that do not train: the rate of `PLAIN`, the only key that they support."""


OF_ANY_SCENE = [name for name in algorithms if name not in ("fedbn", "orchestra")]
"""Algorithms that train any network on any task; the others need batch norm, or their own task."""


def supported(algorithm: str | Mapping[str, Any], local: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys of `local` that an algorithm supports; it rejects the others."""
    named = dict(algorithm) if isinstance(algorithm, Mapping) else {"name": algorithm}
    kind = algorithms.resolve(named.pop("name"))
    keys = kind(**{key: value for key, value in named.items() if key in kind.model_fields}).local_keys()
    return {key: value for key, value in local.items() if keys is None or key in keys}


def prepared(
    algorithm: str | Mapping[str, Any],
    setting: Setting,
    phase: Mapping[str, Any] = MappingProxyType({}),
    **changes: Any,
) -> tuple[RunPlan, FlatModel]:
    """A job whose only phase is of this algorithm.

    phase: more keys of the phase. changes: other tables of the scenario.
    """
    federated = {
        "name": "federated",
        "algorithm": dict(algorithm) if isinstance(algorithm, Mapping) else algorithm,
        "rounds": setting.rounds,
        "cohort": {"explicit": [list(cohort) for cohort in setting.cohorts]},
        "local": dict(setting.local),
        **phase,
    }
    tables = {
        "seed": SEED,
        "data": {"name": f"{__name__}:people", "options": {"number": setting.clients}},
        "model": {"name": f"{__name__}:TanhNet", "loudness": setting.loudness},
        "phases": [federated],
        "evaluation": {"every": 1000},
    }
    return prepare(Scenario.from_tables(tables | changes), Path("no-data-here"))


def trained(algorithm: str | Mapping[str, Any], setting: Setting, **phase: Any) -> torch.Tensor:
    """float64 [parameters], no padding: the model to evaluate in the end; phase: more keys of the phase."""
    job, model = prepared(algorithm, setting, phase)
    vector, _ = run_on_hosts(job, 1)
    return torch.cat([part.flatten() for part in model.state_dict(torch.from_numpy(vector)).values()]).double()
