"""Networks and data that an algorithm cannot work with are rejected before anything starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.perfedavg import PerFedAvg
from rayfl.errors import ScenarioError
from rayfl.local import TrainingBatch
from rayfl.tasks.supervised import Classification
from tests.algorithms.scene import PLAIN, RATE, Setting, prepared

FOREIGN = "tests.user_code:Linear"
"""A network that declares nothing."""


def failure(algorithm: str | dict[str, Any], setting: Setting = PLAIN, **changes: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        prepared(algorithm, setting, **changes)
    return str(caught.value)


NO_HEAD = (
    "model Linear does not declare its head; name that layer in `model` (feature_layer = 'read_out', its last "
    "one?), or derive the class from rayfl.models.Network"
)


@pytest.mark.parametrize("name", ["moon", "feddecorr"])
def test_features_must_be_declared(name: str) -> None:
    assert failure(name, model=FOREIGN) == (
        f"phase 'federated' ({name}) reads the network's features, the input of its head: {NO_HEAD}"
    )


def test_modules_must_be_declared_where_they_thaw_in_order() -> None:
    assert failure("fedavg", PLAIN.with_local(unfreeze={"share": 0.5}), model=FOREIGN) == (
        "phase 'federated' (fedavg): model Linear: unfreezing modules needs their order; derive it from "
        "rayfl.models.Network and declare ordered_modules"
    )


@pytest.mark.parametrize(("name", "train"), [("fedbabu", "all"), ("fedavg", "body"), ("fedavg", "head")])
def test_the_head_must_be_declared_where_it_is_cut_off(name: str, train: str) -> None:
    assert failure(name, model=FOREIGN, phase={"train": train}) == (
        f"phase 'federated' ({name}): train: {NO_HEAD}; or give names of modules"
    )


def test_something_must_be_left_to_train() -> None:
    message = failure("fedbabu", phase={"train": "head"})
    assert message == (
        "phase 'federated' (fedbabu): train: model TanhNet has no parameters left to train with train = 'body' and "
        "train = 'head'"
    )


@pytest.mark.parametrize(
    ("train", "complaint"),
    [
        (["secnd"], "phase 'federated' (fedavg): train: model TanhNet has no module 'secnd'; did you mean 'second'?"),
        (
            ["dropout"],
            "phase 'federated' (fedavg): train: module 'dropout' of model TanhNet has no parameters to train",
        ),
    ],
)
def test_only_parts_of_the_network_can_train(train: Any, complaint: str) -> None:
    assert complaint in failure("fedavg", phase={"train": train})


@pytest.mark.parametrize(("name", "setting"), [("fedmeta", RATE), ("perfedavg", PLAIN)])
def test_batch_norm_is_rejected_where_its_statistics_would_never_be_updated(name: str, setting: Setting) -> None:
    assert failure(name, setting, model=f"{__name__}:HeadOnly") == (
        f"phase 'federated' ({name}) computes gradients in evaluation mode, which never updates the running statistics "
        "of 'norm' of model HeadOnly; use group norm (model.norm = 'group' for the ResNets)"
    )


def test_a_client_too_small_for_support_and_query_is_named() -> None:
    lopsided: dict[str, Any] = {"data": {"name": f"{__name__}:lopsided"}, "phase": {"cohort": 1}}
    assert failure("fedmeta", RATE, **lopsided) == (
        "phases.federated.algorithm: client 1 has 1 training sample, too few for a support and a query set; hold fewer "
        "samples out, use fewer or other clients, or a partition with a minimum"
    )
    prepared("perfedavg", PLAIN, **lopsided)


def lopsided() -> dict[str, tuple[np.ndarray, ...]]:
    """Five samples of one client, a single one of another."""
    x, y = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), np.array([0, 1, 2, 0, 1, 2])
    return {"train": (x, y, np.array([0, 0, 0, 0, 0, 1])), "test": (x, y)}


@pytest.mark.parametrize("asked", [("servers",), (), None, ["cohort"]], ids=str)
def test_participants_of_an_exchange_must_be_known_words(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FedAvg, "asks", lambda _: asked)
    assert failure("fedavg") == (
        "phases.federated.algorithm: FedAvg.asks() must return, for each exchange of a round, one of "
        f"'cohort', 'server', 'host', not {asked!r}"
    )


class Regularised(Classification):
    """A task whose training minimises more than its loss."""

    name: str = "regularised"

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        return self.loss(batch.outputs, batch.y) + batch.outputs.square().mean()


@pytest.mark.parametrize("name", ["fedmeta", "perfedavg", "qfedsgd", "qfedavg", "coprefl"])
def test_algorithms_that_ask_for_losses_refuse_a_task_that_trains_on_something_else(name: str) -> None:
    setting = RATE if name in ("fedmeta", "qfedsgd") else PLAIN
    said = failure(name, setting, task=f"{__name__}:Regularised")
    assert said.startswith(f"phase 'federated' ({name}) requests losses and gradients, which leave out the training")
    prepared("fedavg", PLAIN, task=f"{__name__}:Regularised")


class Careless(PerFedAvg):
    def local_keys(self) -> frozenset[str] | None:
        return frozenset({"lr", "rate"})


def test_the_keys_that_your_own_algorithm_reads_must_be_keys_of_local() -> None:
    message = failure(f"{__name__}:Careless")
    assert message.startswith(
        "phases.federated.algorithm: Careless.local_keys() must return None or a frozenset of keys of local, not "
    )


class HeadOnly(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


@pytest.mark.parametrize("buffers", ["keep", "reset"])
@pytest.mark.parametrize("name", ["fedavg", "scaffold", "feddyn", "fedexp", "fedadam"])
def test_an_option_for_buffers_is_rejected_where_the_network_has_none(name: str, buffers: str) -> None:
    message = failure({"name": name, "buffers": buffers})
    assert message == f"phase 'federated' ({name}): 'buffers' has no effect, since model TanhNet has none; leave it out"
    local = PLAIN.with_local(drop_last=True)
    prepared({"name": name, "buffers": buffers}, local, model=f"{__name__}:HeadOnly")
    with pytest.raises(
        ScenarioError, match="'buffers' has no effect, since model HeadOnly has none that the phase trai"
    ):
        prepared({"name": name, "buffers": buffers}, local, {"train": ["head"]}, model=f"{__name__}:HeadOnly")


def test_units_are_those_that_the_network_declares() -> None:
    message = failure("fedavg", PLAIN.with_local(unfreeze={"share": 0.5, "units": "blocks"}))
    assert message == (
        "phase 'federated' (fedavg): local.unfreeze.units: model TanhNet has no units 'blocks'; "
        "it has 'modules', 'halves'"
    )


def test_the_codes_schedule_needs_a_step_for_every_unit_of_the_shortest_client_update() -> None:
    """The smallest client has 4 samples: one step an epoch, two in all."""
    message = failure("fedavg", PLAIN.with_local(unfreeze={"share": 1.0, "schedule": "code"}))
    assert message == (
        "phase 'federated' (fedavg): local.unfreeze: with schedule = 'code' a share of 1.0 of 2 steps is too short "
        "for 3 units; it must contain at least 3 steps"
    )
    prepared("fedavg", PLAIN.with_local(epochs=3, unfreeze={"share": 1.0, "schedule": "code"}))
    prepared("fedavg", PLAIN.with_local(unfreeze={"share": 1.0, "schedule": "code", "units": "halves"}))
    prepared("fedavg", PLAIN.with_local(unfreeze={"share": 0.1, "schedule": "paper"}))
