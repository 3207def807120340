"""Evaluation on several sets: the test samples, what is cut from clients' training samples, other domains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import rayfl
from rayfl.config.scenario import Scenario
from rayfl.data.dataset import Dataset, Provenance, Samples
from rayfl.engine.events import Evaluated
from rayfl.errors import ScenarioError
from rayfl.runs.preparation import prepare
from tests.engine.scenes import FEDERATED, defined, run_on_hosts

HERE = __name__


def blobs() -> Dataset:
    """Three classes in the plane, and an additional test set that is harder."""
    rng = np.random.default_rng(2)

    def drawn(number: int, noise: float) -> Samples:
        y = rng.integers(0, 3, number)
        centres = np.array([[0, 0], [3, 0], [0, 3]])
        return Samples((centres[y] + noise * rng.normal(size=(number, 2))).astype(np.float32), y)

    return Dataset(
        "blobs", drawn(240, 0.5), drawn(60, 0.5), 3, Provenance("arrays", "blobs"), tests={"hard": drawn(60, 3)}
    )


def tables(data: dict[str, Any], **changes: Any) -> dict[str, Any]:
    partition = {"name": "dirichlet", "beta": 1.0}
    return {
        "name": "sets",
        "data": {"name": f"{HERE}:blobs", "clients": 6, "partition": partition, **data},
        "model": "tests.user_code:Linear",
        "phases": [FEDERATED],
    } | changes


def evaluations(hosts: int, data: dict[str, Any], **evaluation: Any) -> list[Evaluated]:
    scenario = Scenario.from_tables(tables(data, evaluation=evaluation))
    job, _ = prepare(scenario, Path("no-data-here"))
    return [event for event in run_on_hosts(job, hosts)[1] if isinstance(event, Evaluated)]


SHARES = {"test_share": 0.2, "validation_share": 0.1}


def test_every_set_has_its_name_in_the_metrics() -> None:
    *_, last = evaluations(1, SHARES)
    sets = ("test", "validation", "client_test", "hard")
    assert set(last.scores) == {f"{name}_{metric}" for name in sets for metric in ("loss", "accuracy")}
    assert defined(last.scores["hard_accuracy"]) < defined(last.scores["test_accuracy"])
    assert last.samples == 60


@pytest.mark.parametrize(
    "evaluation",
    [{"per_client": True, "batch_size": 7}, {"personalize": {"lr": 0.1}}, {"clients": 3}],
    ids=lambda evaluation: next(iter(evaluation)),
)
def test_clients_are_scored_on_samples_cut_from_their_own_on_any_number_of_hosts(evaluation: dict[str, Any]) -> None:
    one, three = (evaluations(hosts, SHARES, **evaluation) for hosts in (1, 3))
    assert one == three
    *_, last = one
    assert {score.set for score in last.clients} == {"validation", "client_test"}
    assert len({score.client for score in last.clients}) == evaluation.get("clients", 6)
    own = [score for score in last.clients if score.set == "client_test"]
    right = sum(score.samples * defined(score.scores["accuracy"]) for score in own)
    samples = sum(score.samples for score in own)
    assert last.scores["client_test_accuracy"] == pytest.approx(right / samples)
    assert ("personalized_accuracy" in last.scores) == ("personalize" in evaluation)


def test_personal_models_are_scored_on_the_clients_own_samples_and_the_global_one_on_the_rest() -> None:
    phase = FEDERATED | {"algorithm": "ditto"}
    scenario = tables(SHARES, phases=[phase], evaluation={"client_model": "personal"})
    outcomes = []
    for hosts in (1, 3):
        job, _ = prepare(Scenario.from_tables(scenario), Path("no-data-here"))
        outcomes.append([event for event in run_on_hosts(job, hosts)[1] if isinstance(event, Evaluated)])
    assert outcomes[0] == outcomes[1]
    plain = evaluations(1, SHARES)[-1].scores
    personal = outcomes[0][-1].scores
    assert personal["test_loss"] == plain["test_loss"]
    assert personal["client_test_loss"] != plain["client_test_loss"]


def test_the_best_round_is_chosen_on_validation_samples_and_the_table_says_so(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+") as file:
        console = Console(file=file, width=160)
        scenario = tables(SHARES, evaluation={"per_client": True})
        result = rayfl.run(scenario, backend="inline", out=tmp_path, data_dir=tmp_path, console=console)
        file.seek(0)
        text = file.read()
    assert "best validation accuracy" in text
    assert "test accuracy in that round" in text
    rows = pq.read_table(result.directory / "clients.parquet").to_pylist()
    assert {row["set"] for row in rows} == {"validation", "client_test"}


def test_scores_per_client_without_test_samples_by_client_are_rejected_with_the_remedy() -> None:
    complaint = r"evaluation\.per_client needs test samples by client: .* data\.test_share"
    with pytest.raises(ScenarioError, match=complaint):
        evaluations(1, {}, per_client=True)
