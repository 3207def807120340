"""A scenario's result depends on the scenario alone: here, on any number of hosts in this process."""

from __future__ import annotations

from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate
from rayfl.local.state import Declaration
from tests.algorithms.scene import supported
from tests.engine.scenes import FEDERATED, PRETRAIN, TINY, by_kind, prepared, run_on_hosts, tables

SHORT = [PRETRAIN | {"rounds": 1}, FEDERATED | {"rounds": 1, "cohort": 3, "local": {"batch_size": 16, "momentum": 0.5}}]
"""Of images, with convolutions, dropout and augmentation, which the all-pairs matrix does without."""

VARIANTS: list[dict[str, Any]] = [
    {"algorithm": {"name": "scaffold", "aggregation": "geometric_median"}},
    {"algorithm": {"name": "scaffold", "option": "I", "correction": "step", "weighting": "samples"}},
    {"algorithm": {"name": "moon", "first": "initial"}},
    {"algorithm": {"name": "moon", "first": "random"}},
    {"algorithm": {"name": "feddyn", "penalty": "decay", "scale_alpha": True}, "eval_model": "all"},
    {"algorithm": "feddyn", "eval_model": "global"},
    {"algorithm": {"name": "fedexp", "form": "feddecorr"}},
    {"algorithm": {"name": "fedmeta", "variant": "meta_sgd", "split": "round"}},
    {"algorithm": {"name": "fedmeta", "order": "first"}},
    {"algorithm": {"name": "perfedavg", "variant": "hessian_free", "weighting": "samples"}, "eval_model": "all"},
]
"""Options of algorithms; the matrix has each with its default options."""


class Drifting(LocalTrainingAlgorithm):
    """Clients remember the sum of their own updates, and send it: a second exchange asks them for it once more."""

    exchanges: ClassVar[int] = 2

    def round(self, server: ServerState, context: RoundContext) -> Round:
        first = yield Exchange(self.client_update, server.model)
        second = yield Exchange(self.send_drift)
        server.model += first.mean("delta") + 0.01 * second.mean("drift")

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        delta = (yield from self.train(client, model)) - model
        client.state["drift"] = client.state.get("drift", torch.zeros_like(delta)) + delta
        return Answer(client.num_samples, delta=delta)

    def send_drift(self, client: ClientContext) -> Answer:
        return Answer(1.0, drift=client.state["drift"])

    def client_state(self) -> Declaration:
        return {"drift": "phase"}


class Guessing(nn.Module):
    """Draws in evaluation too, as Monte Carlo dropout does."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(4, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(nn.functional.dropout(x))
        return logits


V2 = "torchvision.transforms.v2"
TEXTS = "tests.data.test_inputs"
PICTURES = {"name": "tests.data.augmentation.test_torchvision_transform:images", "clients": 3}
ROTATION = {"name": f"{V2}:RandomRotation", "degrees": 10}
BATCHES: list[dict[str, Any]] = [
    {"data": {**PICTURES, "augment": ["flip", f"{V2}:RandomErasing", ROTATION]}},
    {"data": {**PICTURES, "augment": [{"name": f"{V2}:ColorJitter", "brightness": 0.5, "per": "batch"}]}},
    {
        "data": {"name": f"{TEXTS}:ragged", "clients": 4, "collate": f"{TEXTS}:tokens_and_mask"},
        "model": f"{TEXTS}:MeanOfWords",
    },
    {"data": {**PICTURES, "validation_share": 0.2, "server_share": 0.1, "seed": 4}},
]


def trained_alike(job: RunPlan) -> np.ndarray:
    """The model of one host; checks that three train the same one, with the same rounds and scores."""
    model, events = run_on_hosts(job, 1)
    other_model, other_events = run_on_hosts(job, 3)
    assert not np.array_equal(model, job.workloads[0].initial.vector)
    assert np.array_equal(other_model, model)
    assert repr(by_kind(other_events)) == repr(by_kind(events))
    return model


def test_model_and_metrics_are_the_same_on_any_number_of_hosts() -> None:
    trained_alike(prepared(phases=SHORT))


def test_seed_dropout_augmentation_take_part_in_the_result_and_the_placement_of_a_relay_does_not() -> None:
    model, _ = run_on_hosts(prepared(phases=SHORT), 1)
    plain, whole = tables()["data"] | {"augment": []}, {"name": "cnn_fashion_mnist", "dropout": 0.0}
    for change in ({"seed": 8}, {"data": plain}, {"model": whole}):
        assert not np.array_equal(run_on_hosts(prepared(phases=SHORT, **change), 1)[0], model), change
    packed, _ = run_on_hosts(prepared(phases=SHORT, resources={"relay": "packed"}), 3)
    assert np.array_equal(packed, model)


def test_client_states_and_several_exchanges_keep_the_bits() -> None:
    trained_alike(prepared(**TINY, phases=[FEDERATED | {"algorithm": f"{__name__}:Drifting"}]))


@pytest.mark.parametrize("variant", VARIANTS, ids=repr)
def test_options_of_algorithms_keep_the_bits(variant: dict[str, Any]) -> None:
    """Clients come back in later rounds; in the last phase they also thaw, and share nothing with the phase before."""
    algorithm = variant["algorithm"]
    local = {"epochs": 1, "batch_size": 4, "momentum": 0.5, "weight_decay": 0.01, "clip_norm": 1.0}
    thawing = {"name": "thawing", "rounds": 1, "local": supported(algorithm, local | {"unfreeze": {"share": 0.7}})}
    phase = FEDERATED | {"rounds": 3, "local": supported(algorithm, local)} | variant
    trained_alike(prepared(**TINY, phases=[phase, phase | thawing]))


@pytest.mark.parametrize("batches", BATCHES)
def test_every_kind_of_batch_keeps_the_bits(batches: dict[str, Any]) -> None:
    phase = {"name": "p", "rounds": 2, "cohort": 3, "local": {"lr": 0.1, "batch_size": 2, "epochs": 2}}
    trained_alike(prepared(**{"model": {"name": "mlp", "hidden": [6]}, "phases": [phase]} | batches))


def fractals(**options: Any) -> RunPlan:
    options = {"codes": 30, "pairs": 48, "test_images": 8, "size": 16, "points": 100} | options
    local = {"batch_size": 4, "lr": 0.1}
    return prepared(
        data={"name": "fractals", "clients": 4, "augment": ["flip"], "options": options},
        task="simsiam",
        model={"name": "siamese", "network": "tests.views_scene:Encoder", "width": 8, "predictor": 4},
        phases=[
            {"name": "parallel", "rounds": 1, "cohort": 3, "local": local},
            {"name": "central", "schedule": "central", "rounds": 1, "local": local},
        ],
        evaluation={"every": 1},
        resources={},
    )


def test_every_form_of_fractals_trains_on_other_images_and_keeps_the_bits() -> None:
    models = [trained_alike(fractals(**form)) for form in ({}, {"form": "cached"}, {"views": "shared"})]
    assert not any(np.array_equal(one, other) for one, other in combinations(models, 2))


def test_a_network_without_classes_does_not_grow_with_the_codes() -> None:
    few, many = (fractals(codes=codes).workloads[0] for codes in (30, 100_000))
    assert many.num_outputs == 1
    assert len(many.initial.vector) == len(few.initial.vector)
    assert many.store.num_classes is None


def test_a_network_that_draws_in_evaluation_has_the_same_scores_on_any_number_of_hosts() -> None:
    changes = {"phases": SHORT[1:], "evaluation": {"batch_size": 5}, "model": f"{__name__}:Guessing"}
    trained_alike(prepared(**TINY | changes))
