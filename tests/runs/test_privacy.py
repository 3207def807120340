"""Records and messages of a run with `local.dp`, compared with Opacus' accountants."""

from __future__ import annotations

import io
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import rayfl
from rayfl.config.scenario import Scenario
from rayfl.engine.events import BudgetSpent, Evaluated, RoundDone
from rayfl.engine.totals import Traffic
from rayfl.local.spending import Mechanism, Spending
from rayfl.privacy.samples.statement import statement
from rayfl.runs.announcement import privacy_lines
from rayfl.runs.folder import PRIVACY_FILE, SPLIT_FILE
from rayfl.runs.privacy_record import PrivacyRecords
from rayfl.runs.records import Records
from tests.engine.scenes import run_on_hosts
from tests.privacy.samples.scene import dp, job, phase, spent_in, tables
from tests.privacy.samples.test_accounting import by_opacus

RDP = {"dp": dp(accountant="rdp")}
"""Composes much faster than the default."""
PHASES = [
    phase("relay", 2, "relay", local=RDP),
    phase("parallel", 3, local={"dp": dp(noise_multiplier=3.0, accountant="rdp")}),
]


def run(out: Path, *phases: dict[str, Any], **more: Any) -> tuple[rayfl.Result, dict[str, Any], str]:
    """The result, privacy.json, and what was printed."""
    console = Console(record=True, width=400, file=io.StringIO())
    result = rayfl.run(tables(*phases, **more), backend="inline", out=out / "runs", console=console)
    return result, json.loads((result.directory / PRIVACY_FILE).read_text())["samples"], console.export_text()


def test_a_private_run_does_not_record_what_single_clients_have(tmp_path: Path) -> None:
    private, *_ = run(tmp_path, phase("p", 1, local=RDP))
    plain = rayfl.run(
        tables(phase("p", 1, local={"dp": None})), backend="inline", out=tmp_path, console=Console(quiet=True)
    )
    assert not (private.directory / SPLIT_FILE).exists()
    assert (plain.directory / SPLIT_FILE).exists()


def opacus_of(name: Any, spending: Spending) -> float:
    if not spending:
        return 0.0
    return of_history(name, tuple((m.noise_multiplier, m.rate, steps) for m, steps in sorted(spending.items())))


@cache
def of_history(name: Any, history: tuple[tuple[float, float, int], ...]) -> float:
    """Asks Opacus once per history, since clients that sat out a round keep theirs."""
    return by_opacus(name, list(history))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prv", "rdp"])
def test_epsilons_in_all_records_are_those_of_opacus(name: Any, tmp_path: Path) -> None:
    phases = [
        {**each, "local": {**each["local"], "dp": {**each["local"]["dp"], "accountant": name}}} for each in PHASES
    ]
    result, content, printed = run(tmp_path, *phases)
    _, events = run_on_hosts(job(*phases), 1)
    expected, spent = [], dict[int, Counter[Mechanism]]()
    for done in (event for event in events if isinstance(event, RoundDone)):
        for client, spending in done.spent.items():
            spent.setdefault(client, Counter()).update(spending)
        expected.append(max(opacus_of(name, spending) for spending in spent.values()))
    np.testing.assert_allclose(result.metrics["epsilon"].to_pylist(), expected, rtol=0, atol=1e-9)
    final = [opacus_of(name, spent.get(client, {})) for client in range(5)]
    rows = [
        row for row in pq.read_table(result.directory / "clients.parquet").to_pylist() if row["epsilon"] is not None
    ]
    assert [(row["phase"], row["round"], row["client"]) for row in rows] == [("parallel", 5, n) for n in range(5)]
    np.testing.assert_allclose([row["epsilon"] for row in rows], final, rtol=0, atol=1e-9)
    assert content["epsilon"]["maximum"] == pytest.approx(max(final), abs=1e-9)
    assert content["epsilon"]["median"] == pytest.approx(sorted(final)[2], abs=1e-9)
    assert content["epsilon"]["accountant_of_clients_parquet"] == name
    assert sum(content["epsilon"]["histogram_by_rdp"]["clients"]) == 5
    median = sorted(final)[2]
    line = f"privacy: example-level epsilon {max(final):.4g} (median {median:.4g}), delta 1e-05, after round 5"
    assert line in printed


def test_the_statement_names_every_aspect_of_the_guarantee(tmp_path: Path) -> None:
    _, content, printed = run(tmp_path, *PHASES)
    aspects = {"level", "unit", "neighbouring_relation", "public", "adversary", "sampling", "composition", "scope",
               "randomness", "delta"}  # fmt: skip
    assert aspects <= content.keys()
    assert "replaced by a null record" in content["neighbouring_relation"]
    assert "does not amplify the privacy of a client" in content["adversary"]
    assert "the seed of noise and batches is public in the records" in content["randomness"]
    assert content["randomness"] in printed
    assert content["rounds"] == 5
    assert [(each["name"], each["noise_multiplier"]) for each in content["phases"]] == [("relay", 1), ("parallel", 3)]
    assert "privacy  relay: noise multiplier 1; epsilon at most" in printed
    assert "note     the largest epsilon is client" in printed


CLIENTS_HIDDEN = {
    "algorithm": {"name": "fedavg", "weighting": "uniform"},
    "local": {"batch_size": 4},
    "dp": {"level": "local", "noise_multiplier": 1.0, "clip_norm": 1.0, "delta": 0.01},
}


@pytest.mark.parametrize("level", ["samples", "clients"])
def test_a_model_that_the_run_starts_from_is_named_as_not_covered(level: str, tmp_path: Path) -> None:
    """The model may have been trained on the same samples without noise; its file does not say."""
    before = phase("p", 1)
    del before["local"]["dp"]
    first = rayfl.run(tables(before), backend="inline", out=tmp_path / "before", console=Console(quiet=True))
    hidden = phase("p", 1, local=RDP) | (CLIENTS_HIDDEN if level == "clients" else {})
    line = "note     not covered by the accountant: the model that the run starts from"
    for start in ({"run": str(first.directory)}, None):
        console = Console(record=True, width=400, file=io.StringIO())
        more = {"start": start} if start else {}
        found = rayfl.run(tables(hidden, **more), backend="inline", out=tmp_path / str(bool(start)), console=console)
        content = json.loads((found.directory / PRIVACY_FILE).read_text())[level]
        named = [entry for entry in content["not_covered"] if entry.startswith("the model that the run starts from")]
        assert len(named) == bool(start)
        assert (line in console.export_text()) == bool(start)


def test_a_secure_source_is_only_claimed_if_all_phases_have_it() -> None:
    secure, seeded = (
        Scenario.from_tables(tables(phase("a", local={"dp": dp(secure=secure)}))).phases[0].local.dp
        for secure in (True, False)
    )
    assert secure is not None
    assert seeded is not None
    assert "cryptographic" in str(statement([secure])["randomness"])
    assert "simulated" in str(statement([secure, seeded])["randomness"])


def test_shuffled_batches_are_not_covered_wherever_an_epsilon_would_stand(tmp_path: Path) -> None:
    shuffled = phase("p", local={"dp": dp(sampling="shuffled", accountant="rdp")})
    result, content, printed = run(tmp_path, phase("first", 1, local=RDP), shuffled)
    assert "epsilon" not in result.metrics.schema.names
    assert not (result.directory / "clients.parquet").exists()
    assert content["sampling"] == "shuffled batches: not covered by the accountant"
    assert content["epsilon"] == "not covered by the accountant"
    assert content["phases"][1]["planned_epsilon"] == "not covered by the accountant"
    assert "privacy  p: noise multiplier 1; not covered by the accountant, delta 1e-05" in printed
    assert "privacy: example-level, delta 1e-05; shuffled batches: not covered by the accountant" in printed


def test_without_noise_epsilon_is_infinite_in_words_and_absent_from_metrics(tmp_path: Path) -> None:
    result, content, printed = run(tmp_path, phase("p", 1, cohort=5, local={"dp": dp(noise_multiplier=0)}))
    assert result.metrics["epsilon"].to_pylist() == [None]
    assert content["epsilon"]["maximum"] == content["epsilon"]["median"] == "infinite"
    assert content["epsilon"]["histogram_by_rdp"]["infinite"] == 5
    assert "epsilon is infinite" in printed


def test_a_budget_that_is_spent_is_told_on_screen_and_in_the_records(tmp_path: Path) -> None:
    limited = phase("p", 30, local={"dp": dp(max_epsilon=12, accountant="rdp", when_spent="stop")})
    result, content, printed = run(tmp_path, limited)
    status = json.loads((result.directory / "status.json").read_text())
    rounds = result.metrics["round"].to_pylist()[-1]
    assert f"the run ends before round {rounds + 1}: an update of client" in printed
    assert content["ended_early"].startswith("an update of client")
    assert (status["status"], status["stopped"]["callback"], status["stopped"]["round"]) == (
        "finished", "local.dp.max_epsilon", rounds,
    )  # fmt: skip
    assert content["epsilon"]["maximum"] <= 12
    leaving = phase("p", 30, local={"dp": dp(max_epsilon=12, accountant="rdp")})
    result, content, printed = run(tmp_path, leaving)
    assert content["left_out"]["number"] == len(content["left_out"]["clients"]) > 0
    assert "phase p ends before round" in printed
    assert max(result.metrics["left_out"].to_pylist()) > 0


def test_noise_for_a_target_is_printed_and_recorded(tmp_path: Path) -> None:
    planned = job(phase("p", 3, cohort=5, local={"dp": dp(target_epsilon=6.0, accountant="rdp")}))
    PrivacyRecords(planned, tmp_path).write()
    (described,) = json.loads((tmp_path / PRIVACY_FILE).read_text())["samples"]["phases"]
    assert described["target_epsilon"] == 6
    assert 5.88 <= described["planned_epsilon"] <= 6
    (line, *_) = privacy_lines(planned)
    assert line.startswith(f"privacy  p: noise multiplier {described['noise_multiplier']:.4g} for target_epsilon 6; ")


def test_noise_of_each_clients_own_is_recorded_for_each(tmp_path: Path) -> None:
    own = dp(target_epsilon=6.0, noise_for="client", accountant="rdp")
    planned = job(phase("p", 3, cohort=5, local={"dp": own}))
    PrivacyRecords(planned, tmp_path).write()
    (described,) = json.loads((tmp_path / PRIVACY_FILE).read_text())["samples"]["phases"]
    noises = described["noise_multiplier_of_client"]
    assert len(noises) == 5
    assert described["noise_multiplier"] == {"least": min(noises), "largest": max(noises)}
    (line, *_) = privacy_lines(planned)
    assert f"{min(noises):.4g} to {max(noises):.4g} by client for target_epsilon 6; epsilon at" in line


def done(round: int, spent: dict[int, Spending], left_out: tuple[int, ...] = ()) -> RoundDone:
    return RoundDone("p", round, round, 1.0, 1, 1, Traffic(), 0.1, spent=spent, left_out=left_out)


def test_an_evaluation_gets_the_epsilon_of_its_own_round_though_later_ones_are_over(tmp_path: Path) -> None:
    records = PrivacyRecords(job(phase("p", 3, local={"dp": dp(accountant="rdp")})), tmp_path)
    step = Mechanism(1.0, 0.5)
    for event in (done(1, {0: {step: 3}}), done(2, {0: {step: 3}}, (4,)), done(3, {1: {step: 9}})):
        assert records.add(event) is event
    found = records.add(Evaluated("p", 2, {"test_loss": 1.0}, 10))
    assert isinstance(found, Evaluated)
    assert found.scores == {"test_loss": 1.0, "epsilon": pytest.approx(opacus_of("rdp", {step: 6}), abs=1e-9)}
    content = json.loads((tmp_path / PRIVACY_FILE).read_text())["samples"]
    assert (content["rounds"], content["left_out"]["clients"]) == (2, [4])


def test_records_go_on_from_their_state(tmp_path: Path) -> None:
    """A run of two rounds; the second one was not evaluated and is not booked yet."""
    step = Mechanism(1.0, 0.5)
    planned = job(phase("p", 3, local={"dp": dp(accountant="rdp")}))
    before, records = PrivacyRecords(planned, tmp_path), PrivacyRecords(planned, tmp_path)
    for event in (done(1, {0: {step: 2}}), Evaluated("p", 1, {}, 10), done(2, {0: {step: 3}}, (3,))):
        before.add(event)
    records.restore(json.loads(json.dumps(before.state())))
    records.add(done(3, {0: {step: 1}}))
    records.add(BudgetSpent("p", 4, "why", False, (1,)))
    found = records.add(Evaluated("p", 3, {}, 10))
    assert isinstance(found, Evaluated)
    assert found.scores["epsilon"] == pytest.approx(opacus_of("rdp", {step: 6}), abs=1e-9)
    content = json.loads((tmp_path / PRIVACY_FILE).read_text())["samples"]
    assert (content["left_out"]["clients"], content["ended_early"]) == ([1, 3], "why")


def test_a_run_that_ends_before_it_has_reported_its_last_rounds_says_so(tmp_path: Path) -> None:
    privacy = PrivacyRecords(job(phase("p", 3, local={"dp": dp(accountant="rdp")})), tmp_path)
    privacy.add(done(1, {0: {Mechanism(1.0, 0.5): 3}}))
    with Records.within(tmp_path) as records:
        privacy.finish(records, model_round=3)
    notes = json.loads((tmp_path / PRIVACY_FILE).read_text())["samples"]["notes"]
    assert "privacy spent in rounds 2 to 3: the saved model is from round 3, and its epsilon is larger" in notes[-1]


def test_the_spending_of_a_rounds_clients_reaches_the_driver() -> None:
    _, events = run_on_hosts(job(*PHASES), 2)
    assert {m.noise_multiplier for spent in spent_in(events).values() for m in spent} == {1.0, 3.0}
