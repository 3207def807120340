"""Personalised accuracy: the global model, trained on a client's own samples, scored on its own test samples."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from rayfl.config.phase import ParallelPhase
from rayfl.config.scenario import Scenario
from rayfl.data.store import ShardStore
from rayfl.engine.events import Evaluated
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.runs.preparation import prepare
from tests.algorithms.scene import CLASSES, TanhNet
from tests.engine.scenes import FEDERATED, TINY, defined, prepared, run_on_hosts, tables

FINE_TUNING = {"epochs": 4, "batch_size": "full", "lr": 0.2}
SCENE: dict[str, Any] = TINY | {"phases": [FEDERATED | {"rounds": 2, "algorithm": "fedbabu"}]}


def last_evaluation(hosts: int = 1, **evaluation: object) -> tuple[np.ndarray, ShardStore, Evaluated]:
    job = prepared(**SCENE, evaluation=evaluation)
    model, events = run_on_hosts(job, hosts)
    return model, job.result.store, [event for event in events if isinstance(event, Evaluated)][-1]


@pytest.mark.slow
def test_a_client_takes_all_its_steps_however_few_samples_it_has() -> None:
    one_pass = {"batch_size": "full", "lr": 0.2}
    _, _, by_steps = last_evaluation(personalize=one_pass | {"steps": 4})
    _, _, by_epochs = last_evaluation(personalize=one_pass | {"epochs": 4})
    _, _, limited = last_evaluation(personalize=one_pass | {"steps": 4, "epochs": 1})
    assert by_steps.scores == by_epochs.scores != limited.scores


@pytest.mark.parametrize("steps", [5, {"uniform": [2, 5]}, {"choices": [5, 3]}], ids=str)
def test_a_scenario_that_is_written_out_says_what_was_given(steps: object) -> None:
    training = {"steps": steps, "lr": 0.1}
    scenario = Scenario.from_tables(
        tables(phases=[FEDERATED | {"server_training": training}], evaluation={"personalize": training})
    )
    phase = scenario.phases[0]
    assert isinstance(phase, ParallelPhase)
    assert phase.server_training is not None
    assert scenario.evaluation.personalize is not None
    assert phase.server_training.epochs == scenario.evaluation.personalize.epochs == 5
    written = tomllib.loads(scenario.to_toml())
    assert "epochs" not in written["phases"][0]["server_training"] | written["evaluation"]["personalize"]
    assert Scenario.from_tables(written) == scenario
    given = scenario.evaluation.personalize.model_validate(training | {"epochs": 2})
    assert (given.epochs, given.model_dump()["epochs"]) == (2, 2)


def rows(store: ShardStore, split: str, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    samples, shards = (store.train, store.train_shards) if split == "train" else (store.test, store.test_shards)
    assert shards is not None
    chosen = shards[client]
    return torch.from_numpy(np.asarray(samples.x)[chosen]), torch.from_numpy(samples.y[chosen])


def test_every_client_is_scored_after_training_on_its_own_samples() -> None:
    vector, store, evaluated = last_evaluation(personalize=FINE_TUNING)
    plain = TanhNet(CLASSES)
    state = FlatModel(TanhNet(CLASSES), torch.device("cpu")).state_dict(torch.tensor(vector))
    for score in evaluated.clients:
        plain.load_state_dict(state)
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.2)
        x, y = rows(store, "train", score.client)
        for _ in range(4):
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(plain(x), y))
            optimizer.step()
        x, y = rows(store, "test", score.client)
        assert score.scores["personalized_accuracy"] == pytest.approx(
            float((plain(x).argmax(dim=1) == y).float().mean())
        )
    scores = [defined(score.scores["personalized_accuracy"]) for score in evaluated.clients]
    assert len(scores) == store.num_clients
    assert evaluated.scores["personalized_accuracy"] == pytest.approx(sum(scores) / len(scores))


def test_personalisation_leaves_the_global_model_and_its_scores_as_they_are() -> None:
    model, _, with_it = last_evaluation(personalize=FINE_TUNING)
    same_model, _, without = last_evaluation(per_client=True)
    assert np.array_equal(model, same_model)
    assert set(with_it.scores) - set(without.scores) == {"personalized_accuracy", "personalized_accuracy_clients"}
    assert without.scores == {name: with_it.scores[name] for name in without.scores}


def test_personalised_scores_are_the_same_on_any_number_of_hosts() -> None:
    fine_tuning = FINE_TUNING | {"batch_size": 8, "momentum": 0.5}
    assert last_evaluation(1, personalize=fine_tuning)[2] == last_evaluation(3, personalize=fine_tuning)[2]


def test_the_head_of_fedbabu_stays_as_it_was_drawn_and_its_body_does_not() -> None:
    job = prepared(**SCENE)
    model, _ = run_on_hosts(job, 1)
    changed = {
        slot.name.partition(".")[0]
        for slot in job.result.initial.layout
        if not np.array_equal(model[slot.offset : slot.end], job.result.initial.vector[slot.offset : slot.end])
    }
    assert changed == {"first", "second"}


def test_personalisation_needs_test_examples_by_client() -> None:
    scene = tables(data={"name": "handwriting", "clients": 8, "partition": "iid"}, evaluation={"personalize": {}})
    with pytest.raises(ScenarioError, match=r"evaluation\.personalize needs test samples by client"):
        prepare(Scenario.from_tables(scene), Path("no-data-here"))
