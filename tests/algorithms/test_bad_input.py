"""What an algorithm cannot work with is told before anything starts: hyper-parameters, networks that lack something."""

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
from rayfl.tasks.classification import Classification
from tests.algorithms.scene import PLAIN, RATE, Setting, prepared

UNKNOWN = "unknown key; known:"
FOREIGN = "tests.user_code:Linear"
"""A network that declares nothing."""


def failure(algorithm: str | dict[str, Any], setting: Setting = PLAIN, **changes: Any) -> str:
    with pytest.raises(ScenarioError) as caught:
        prepared(algorithm, setting, **changes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "option", "value", "complaint"),
    [
        ("fedavg", "server_lr", 0, "is now called phases.federated.algorithm.server_optimizer.lr"),
        ("fedavg", "weighting", "sizes", "must be 'samples' or 'uniform' (got 'sizes')"),
        ("fedavg", "buffers", "drop", "must be 'average', 'keep' or 'reset' (got 'drop')"),
        ("fedavgm", "lr", 0, "must be greater than 0 (got 0)"),
        ("fedavgm", "momentum", 1.0, "must be less than 1 (got 1.0)"),
        ("fedavgm", "momentum", -0.1, "must be greater than or equal to 0 (got -0.1)"),
        ("fedadagrad", "beta_2", 0.5, "unknown key; did you mean 'beta_1'?"),
        ("fedadam", "tau", 0, "must be greater than 0 (got 0)"),
        ("fedadam", "beta_1", 1, "must be less than 1 (got 1)"),
        ("fedyogi", "beta_2", -1, "must be greater than or equal to 0 (got -1)"),
        ("fedprox", "mu", -1, "must be greater than or equal to 0 (got -1)"),
        ("fedprox", "mu", float("nan"), "must be a finite number (got nan)"),
        (
            "fedprox",
            "proximal",
            1,
            f"{UNKNOWN} aggregation, buffers, mu, penalties, server_optimizer, weighting",
        ),
        ("scaffold", "option", "III", "must be 'I' or 'II' (got 'III')"),
        ("scaffold", "correction", "loss", "must be 'gradient' or 'step' (got 'loss')"),
        ("moon", "tau", 0, "must be greater than 0 (got 0)"),
        ("moon", "mu", -5, "must be greater than or equal to 0 (got -5)"),
        ("moon", "first", "last", "must be 'skip', 'initial' or 'random' (got 'last')"),
        ("feddyn", "alpha", 0, "must be greater than 0 (got 0)"),
        ("feddyn", "report", "all", "is now called phases.federated.eval_model"),
        ("feddyn", "penalty", "loss", "must be 'gradient' or 'decay' (got 'loss')"),
        ("feddyn", "weighting", "samples", "unknown key; known: alpha, buffers, penalties, penalty, scale_alpha"),
        ("fedexp", "epsilon", -1, "must be greater than or equal to 0 (got -1)"),
        ("fedexp", "decay", 0, "must be greater than 0 (got 0)"),
        ("fedexp", "decay", 1.1, "must be less than or equal to 1 (got 1.1)"),
        ("fedexp", "form", "scaffold", "must be 'paper', 'code', 'feddecorr' or 'fedbug' (got 'scaffold')"),
        ("feddecorr", "beta", -0.1, "must be greater than or equal to 0 (got -0.1)"),
        ("feddecorr", "scaling", "batch", "must be 'correlation' or 'code' (got 'batch')"),
        ("fednova", "rho", 0.9, f"{UNKNOWN} aggregation, buffers, penalties, server_optimizer, weighting"),
        ("qfedavg", "q", -1, "must be greater than or equal to 0 (got -1)"),
        ("qfedsgd", "q", -1, "must be greater than or equal to 0 (got -1)"),
        ("fedmeta", "variant", "reptile", "must be 'maml' or 'meta_sgd' (got 'reptile')"),
        ("fedmeta", "order", "second", "must be 'first' or 'exact' (got 'second')"),
        ("fedmeta", "meta_lr", 0, "must be greater than 0 (got 0)"),
        ("fedmeta", "query_share", 1.0, "must be less than 1 (got 1.0)"),
        ("fedmeta", "split", "never", "must be 'client' or 'round' (got 'never')"),
        ("perfedavg", "variant", "exact", "must be 'first_order' or 'hessian_free' (got 'exact')"),
        ("perfedavg", "inner_lr", 0, "must be greater than 0 (got 0)"),
        ("perfedavg", "delta", -1, "must be greater than 0 (got -1)"),
        (
            "fedbabu",
            "head",
            "read_out",
            f"{UNKNOWN} aggregation, buffers, penalties, server_optimizer, weighting",
        ),
    ],
)
def test_hyper_parameters_are_named_with_what_is_allowed(name: str, option: str, value: Any, complaint: str) -> None:
    message = failure({"name": name, option: value})
    assert message.startswith("phases.")
    assert f".algorithm.{option}: {complaint}" in message


@pytest.mark.parametrize("name", ["feddyn", "fedexp", "qfedavg", "qfedsgd"])
def test_algorithms_with_their_own_server_step_have_no_server_optimizer_to_set(name: str) -> None:
    """FedDyn's server goes to the mean and to the clients' corrections: a rate that is never read must not pass."""
    options = {"name": name, "server_optimizer": {"name": "sgd", "lr": 0.5}}
    assert ".algorithm.server_optimizer: unknown key" in failure(options, RATE if name == "qfedsgd" else PLAIN)


def test_which_model_is_evaluated_is_one_of_five() -> None:
    allowed = "'global', 'average', 'participants', 'all' or 'ema'"
    assert f"phases.federated.eval_model: must be {allowed} (got 'server')" in failure(
        "feddyn", phase={"eval_model": "server"}
    )


@pytest.mark.parametrize(
    ("phase", "complaint"),
    [
        ({"ema_decay": 0.9}, "ema_decay has no effect without eval_model = 'ema'; leave it out"),
        ({"eval_model": "ema", "ema_decay": 1.0}, "phases.federated.ema_decay: must be less than 1 (got 1.0)"),
        (
            {"schedule": "relay", "ema_decay": 0.9},
            "phases.federated.ema_decay: has no effect with this schedule; leave it out",
        ),
    ],
)
def test_the_decay_of_a_moving_average_is_named(phase: dict[str, Any], complaint: str) -> None:
    assert complaint in failure("fedavg", phase=phase)


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
        (
            "feet",
            "phases.federated.train: must be 'all', 'head', 'body', or a list of names of the network's modules",
        ),
        (
            [],
            "phases.federated.train: must be 'all', 'head', 'body', or a list of names of the network's modules",
        ),
    ],
)
def test_only_parts_of_the_network_can_train(train: Any, complaint: str) -> None:
    assert complaint in failure("fedavg", phase={"train": train})


RATE_READ = "lr, lr_decay, lr_decay_from, lr_drop, lr_drops, round_schedule"
META_SGD = {"name": "fedmeta", "variant": "meta_sgd"}


@pytest.mark.parametrize(
    ("algorithm", "local", "reason"),
    [
        ("fedmeta", {"momentum": 0.9}, "clients of 'fedmeta' do not train"),
        (META_SGD, {"epochs": 2}, "clients of 'fedmeta' do not train"),
        (META_SGD, {"lr_decay": 0.9}, "with these options, 'fedmeta' reads only lr"),
        *(
            (
                "perfedavg",
                local,
                f"with these options, 'perfedavg' reads only batch_size, epochs, {RATE_READ}, steps",
            )
            for local in (
                {"momentum": 0.9},
                {"weight_decay": 0.1},
                {"clip_norm": 1.0},
                {"optimizer": "adam"},
                {"unfreeze": {"share": 0.5}},
                {"precision": "bf16"},
                {"sample_weights": "inverse_frequency"},
                {"lr_schedule": "cosine"},
                {"drop_last": True},
                {"shuffle": False},
                {"accumulate": 2},
            )
        ),
    ],
    ids=str,
)
def test_options_of_local_training_that_meta_learning_does_not_read_are_rejected(
    algorithm: Any, local: dict[str, Any], reason: str
) -> None:
    ((key, _),) = local.items()
    message = failure(algorithm, Setting(local=local))
    assert message == f"phases.federated.local.{key}: has no effect: {reason}; leave it out"


def test_a_difference_that_is_never_taken_has_no_step() -> None:
    message = failure({"name": "perfedavg", "delta": 0.01})
    assert "delta has no effect with variant = 'first_order'; leave it out" in message


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


@pytest.mark.parametrize("name", ["fedmeta", "qfedsgd"])
def test_losses_of_a_training_that_is_not_done_choose_no_clients(name: str) -> None:
    cohort = {"cohort": {"sampler": "power_of_choice", "clients": 2, "candidates": 4}}
    assert failure(name, RATE, phase=cohort) == (
        f"phases.federated.cohort: 'power_of_choice' reads training losses, and clients of '{name}' do not train; use "
        "another cohort"
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
    prepared({"name": name, "buffers": buffers}, PLAIN.with_local(drop_last=True), model=f"{__name__}:HeadOnly")


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


@pytest.mark.parametrize(
    ("local", "complaint"),
    [
        ({"fixed_last": 1}, "fixed_last: is now called phases.federated.train"),
        ({"unfreeze": {}}, "unfreeze.share: is missing"),
        ({"unfreeze": {"share": 1.5}}, "unfreeze.share: must be less than or equal to 1 (got 1.5)"),
        ({"unfreeze": {"share": -0.1}}, "unfreeze.share: must be greater than or equal to 0"),
        (
            {"unfreeze": {"share": 0.5, "order": "sideways"}},
            "unfreeze.order: must be 'bottom_up' or 'top_down' (got 'sideways')",
        ),
        (
            {"unfreeze": {"share": 0.5, "schedule": "linear"}},
            "unfreeze.schedule: must be 'paper' or 'code' (got 'linear')",
        ),
        ({"unfreeze": {"share": 0.5, "period": 3}}, "unfreeze.period: unknown key"),
    ],
)
def test_wrong_options_of_local_training_are_rejected(local: dict[str, Any], complaint: str) -> None:
    assert f".local.{complaint}" in failure("fedavg", PLAIN.with_local(**local))
