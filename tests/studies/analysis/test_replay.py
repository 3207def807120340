"""A round is replayed from kept models with the same bits, or raises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch

from rayfl.config.scenario import Scenario
from rayfl.errors import DataError, RayflError, ScenarioError
from rayfl.runs.preparation import prepare
from rayfl.runs.resolution import resolve
from rayfl.studies.analysis.replay import Replay, check_answers, replayable_rounds
from rayfl.studies.analysis.run_folder import RunFolder
from tests.callbacks.scene import LOCAL, PLAIN, tables
from tests.privacy.clients.scenes import UNIFORM, central
from tests.studies.analysis.scene import copied, finished, opened

SECURE = {
    **{key: value for key, value in LOCAL.items() if key != "epochs"},
    "steps": 2,
    "dp": {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "secure": True, "physical_batch_size": 1, "delta": 1e-3},
}


def test_rounds_of_parallel_phases_end_at_the_kept_models(finished_run: RunFolder) -> None:
    run = opened(finished_run)
    rounds = replayable_rounds(finished_run)
    assert rounds == [3, 4, 5, 6]
    for number in rounds:
        replayed = Replay(run).round(number)
        assert np.array_equal(replayed.after, run.vector(number))
        mean = replayed.weights @ replayed.models.astype(np.float64)
        np.testing.assert_allclose(mean, replayed.after, atol=1e-6)
        assert not np.array_equal(replayed.before, replayed.after)


@pytest.mark.parametrize("algorithm", ["fedprox", {"name": "fedavg", "weighting": "uniform", "aggregation": "median"}])
def test_algorithms_without_state_are_replayed_whatever_their_aggregation(tmp_path: Path, algorithm: Any) -> None:
    run = opened(finished(tmp_path, phases=[{**PLAIN, "rounds": 2, "algorithm": algorithm}]))
    for number in replayable_rounds(run.folder):
        assert np.array_equal(Replay(run).round(number).after, run.vector(number))


def check(run: RunFolder) -> None:
    replayable_rounds(run)
    check_answers(prepare(run.scenario, Path())[0].phases[0])


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ({"algorithm": "scaffold"}, "'scaffold' keeps state from round to round"),
        ({"algorithm": "fedadam"}, "'fedadam' keeps state from round to round"),
        ({"algorithm": "qfedavg"}, "in a round of 'qfedavg' clients do more"),
        ({"eval_model": "participants"}, "kept models are 'participants' ones"),
        ({"cohort": {"sampler": "power_of_choice", "clients": 2, "candidates": 4}}, "a sampler's cohort"),
        ({"schedule": "relay"}, "it has no parallel phase"),
        ({"algorithm": UNIFORM, "dp": central(secure=True)}, "'secure' noise cannot be drawn again"),
        ({"algorithm": UNIFORM, "dp": central()}, "it only reveals sums of clients"),
        ({"local": SECURE}, r"local.dp: 'secure' noise cannot be drawn again"),
    ],
)
def test_questions_that_kept_models_cannot_answer_are_rejected(
    finished_run: RunFolder, phase: dict[str, Any], said: str
) -> None:
    changes = {"phases": [PLAIN | {"rounds": 2} | phase], "model": "tests.algorithms.scene:TanhNet"}
    run = RunFolder(finished_run.path)
    run.scenario = resolve(Scenario.from_tables(tables(**changes)))
    with pytest.raises(ScenarioError, match=said) as caught:
        check(run)
    assert "\n" not in str(caught.value)


def test_a_run_without_kept_models_says_how_to_get_them(finished_run: RunFolder, tmp_path: Path) -> None:
    run = copied(finished_run, tmp_path)
    for kept in (run.path / "models").glob("round_*[135].safetensors"):
        kept.unlink()
    with pytest.raises(DataError, match=r"lacks the model after round 3 .*periodic_model.*every = 1"):
        replayable_rounds(run)


def test_rounds_whose_scores_are_of_another_metric_are_left_out(
    finished_run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = replayable_rounds(finished_run)
    monkeypatch.setattr("rayfl.studies.analysis.replay.comparable_phases", lambda *_: ("other",))
    with pytest.raises(ScenarioError, match=r"rounds: '.*' has another task or metric than 'other', which ranks"):
        replayable_rounds(finished_run, every)
    with pytest.raises(ScenarioError, match="it has no parallel phase"):
        replayable_rounds(finished_run)


def test_rounds_that_the_run_does_not_have_are_rejected(finished_run: RunFolder) -> None:
    with pytest.raises(ScenarioError, match="has rounds 1 to 6, not 7"):
        replayable_rounds(finished_run, [7])
    with pytest.raises(ScenarioError, match=r"phases.cyclic: its rounds have no local models"):
        replayable_rounds(finished_run, [1])


def test_another_outcome_is_told_with_what_differs(finished_run: RunFolder, tmp_path: Path) -> None:
    run = copied(finished_run, tmp_path)
    tensors = safetensors.torch.load_file(run.models[4])
    tensors["second.weight"][0, 0] += 1e-6
    safetensors.torch.save_file(tensors, run.models[4])
    with pytest.raises(
        DataError,
        match=r"replaying round 4 gives another model: 1 of \d+ values differ, .* in 'second.weight'",
    ):
        Replay(opened(run)).round(4)


def test_other_data_and_folders_without_a_finished_run_are_rejected(finished_run: RunFolder, tmp_path: Path) -> None:
    run = copied(finished_run, tmp_path)
    file = run.path / "environment.json"
    environment = json.loads(file.read_text())
    environment["data"]["digest"] = "0" * 64
    file.write_text(json.dumps(environment))
    with pytest.raises(DataError, match="the data has changed since the run"):
        opened(run)
    with pytest.raises(DataError, match="is not the folder of a run"):
        RunFolder.read(tmp_path)
    status = json.loads((run.path / "status.json").read_text())
    (run.path / "status.json").write_text(json.dumps({**status, "status": "failed"}))
    with pytest.raises(RayflError, match="has not finished"):
        RunFolder.read(run.path)
