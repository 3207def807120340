"""Features of kept models on the data of another run, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.errors import DataError, ScenarioError
from rayfl.studies.analysis.run_folder import RunFolder
from tests.algorithms.scene import people
from tests.studies.analysis.by_hand import tensors
from tests.studies.analysis.scene import analysed, build, finished, opened


def pictures() -> Dataset:
    labels = np.arange(48, dtype=np.int64) % 2
    samples = Samples(np.zeros((48, 4, 4, 1), np.uint8), labels)
    return Dataset("pictures", samples, samples, 2, Provenance("arrays", "black"))


def features(run: RunFolder, round: int, x: np.ndarray) -> np.ndarray:
    """The inputs of TanhNet's last layer, scaled to length 1."""
    own = opened(run)
    held = tensors(own.vector(round), own.workload(round).initial.layout)
    for name in ("first", "second"):
        x = np.tanh(x @ held[f"{name}.weight"].T + held[f"{name}.bias"])
    unit: np.ndarray = x / np.linalg.norm(x, axis=1, keepdims=True)
    return unit


def test_neighbours_are_training_samples_by_the_features_of_each_model(finished_run: RunFolder, tmp_path: Path) -> None:
    rows = analysed("probe", finished_run, out=tmp_path, rounds=[0, 6], k=1)
    data = people()
    assert [row["round"] for row in rows] == [0, 6]
    for row in rows:
        cosines = (
            features(finished_run, row["round"], data.test.x) @ features(finished_run, row["round"], data.train.x).T
        )
        right = data.train.y[cosines.argmax(axis=1)] == data.test.y
        assert row["knn"] == pytest.approx(right.mean())
        assert 1 / 3 < row["linear_probe"] <= 1


def test_the_last_run_has_the_data_and_every_run_has_its_models(finished_run: RunFolder, tmp_path: Path) -> None:
    fewer = finished(tmp_path / "fewer", data={"name": "tests.algorithms.scene:people", "options": {"number": 6}})
    rows = analysed("probe", finished_run, fewer, out=tmp_path, k=1)
    assert [(row["run"], row["round"]) for row in rows] == [(run, round) for run in (0, 1) for round in range(7)]
    data = people(6)
    cosines = features(finished_run, 6, data.test.x) @ features(finished_run, 6, data.train.x).T
    assert rows[6]["knn"] == pytest.approx((data.train.y[cosines.argmax(axis=1)] == data.test.y).mean())


def test_a_bank_of_some_samples_is_drawn_once(finished_run: RunFolder, tmp_path: Path) -> None:
    one, other = (
        analysed("probe", finished_run, out=tmp_path / name, rounds=6, bank=20, samples=10) for name in ("one", "other")
    )
    assert one == other
    assert (10 * one[0]["knn"]) % 1 == pytest.approx(0)


def test_models_that_were_not_kept_are_missed_before_anything_is_loaded(finished_run: RunFolder) -> None:
    with pytest.raises(DataError, match="lacks the model after round 7"):
        build("probe", rounds=[7]).units([finished_run])


def test_inputs_of_other_networks_are_rejected(finished_run: RunFolder, tmp_path: Path) -> None:
    images = finished(tmp_path / "images", data={"name": f"{__name__}:pictures", "clients": 12}, model="mlp")
    with pytest.raises(ScenarioError, match="as the last run name one on images with the same number of channels"):
        build("probe").compute(
            build("probe").units([finished_run, images])[0], [opened(finished_run), opened(images)].__getitem__
        )
