"""A scenario's result depends on the scenario alone: here, on any number of hosts in this process."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.engine.events import Evaluated, Event, RoundDone
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate
from rayfl.local.state import Declaration
from tests.algorithms.scene import supported
from tests.engine.scenes import FEDERATED, PRETRAIN, TINY, prepared, run_on_hosts, tables, without_clock

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


def test_a_network_that_draws_in_evaluation_has_the_same_scores_on_any_number_of_hosts() -> None:
    changes = {"phases": SHORT[1:], "evaluation": {"batch_size": 5}, "model": f"{__name__}:Guessing"}
    made = prepared(**TINY | changes)
    scores = []
    for hosts in (1, 2, 3):
        _, events = run_on_hosts(made, hosts)
        scores.append([event.scores for event in events if isinstance(event, Evaluated)])
    assert scores[0] == scores[1] == scores[2] != []


@pytest.fixture(scope="module")
def alone() -> tuple[np.ndarray, list[Event]]:
    """The model and the events of one host."""
    return run_on_hosts(prepared(phases=SHORT), 1)


def test_model_and_metrics_are_the_same_on_any_number_of_hosts(alone: tuple[np.ndarray, list[Event]]) -> None:
    job = prepared(phases=SHORT)
    model, events = alone
    other_model, other_events = run_on_hosts(job, 3)
    assert not np.array_equal(model, job.result.initial.vector)
    assert np.array_equal(model, other_model)
    # evaluations of a relay overlap with its later rounds, so the order of events may differ, not their content
    for kind in (RoundDone, Evaluated):
        mine = without_clock([event for event in events if isinstance(event, kind)])
        assert mine == without_clock([event for event in other_events if isinstance(event, kind)])


def test_seed_dropout_augmentation_take_part_in_the_result_and_the_placement_of_a_relay_does_not(
    alone: tuple[np.ndarray, list[Event]],
) -> None:
    model, _ = alone
    plain, whole = tables()["data"] | {"augment": []}, {"name": "cnn_fashion_mnist", "dropout": 0.0}
    for change in ({"seed": 8}, {"data": plain}, {"model": whole}):
        assert not np.array_equal(run_on_hosts(prepared(phases=SHORT, **change), 1)[0], model), change
    packed, _ = run_on_hosts(prepared(phases=SHORT, resources={"relay": "packed"}), 3)
    assert np.array_equal(packed, model)


def test_client_states_and_several_exchanges_keep_the_bits() -> None:
    phase = FEDERATED | {"algorithm": f"{__name__}:Drifting"}
    job = prepared(**TINY, phases=[phase])
    expected, _ = run_on_hosts(job, 1)
    model, _ = run_on_hosts(job, 3)
    assert np.array_equal(model, expected)


@pytest.mark.parametrize("variant", VARIANTS, ids=repr)
def test_options_of_algorithms_keep_the_bits(variant: dict[str, Any]) -> None:
    """Clients come back in later rounds; in the last phase they also thaw, and share nothing with the phase before."""
    algorithm = variant["algorithm"]
    local = {"epochs": 1, "batch_size": 4, "momentum": 0.5, "weight_decay": 0.01, "clip_norm": 1.0}
    thawing = {"name": "thawing", "rounds": 1, "local": supported(algorithm, local | {"unfreeze": {"share": 0.7}})}
    phase = FEDERATED | {"rounds": 3, "local": supported(algorithm, local)} | variant
    job = prepared(**TINY, phases=[phase, phase | thawing])
    expected, expected_events = run_on_hosts(job, 1)
    assert not np.array_equal(expected, job.result.initial.vector)
    model, events = run_on_hosts(job, 3)
    assert np.array_equal(model, expected)
    for kind in (RoundDone, Evaluated):
        mine = without_clock([event for event in events if isinstance(event, kind)])
        assert repr(mine) == repr(without_clock([e for e in expected_events if isinstance(e, kind)]))
