"""Runs with `secure` noise: a round is charged before it begins, and a run that goes on is charged for all of them."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from rich.console import Console

import rayfl
from rayfl.backends.inline import InlineBackend, _InlineWorker
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.errors import ResourceError
from rayfl.privacy.composition import LATTICE_ORDERS, orders_of
from rayfl.privacy.release_ledger import ChargedRound, ReleaseLedger
from rayfl.runs.archive import RunArchive
from rayfl.runs.status import mark_lost
from tests.algorithms.scene import SIZES
from tests.callbacks.scene import StopAt
from tests.runs.lifecycle.scene import EndsAfter

BATCH, DELTA = 4, 1e-5
SAMPLES = {"noise_multiplier": 3.0, "max_grad_norm": 1.0, "secure": True, "physical_batch_size": 1}
CLIENTS = {"level": "central", "noise_multiplier": 3.0, "clip_norm": 1.0, "delta": DELTA, "secure": True}
COHORT = [0, 5, 7]


def tables(local: Any = None, dp: Any = None, cohort: Any = None, rounds: int = 5, **changes: Any) -> dict[str, Any]:
    """FedAvg on three of twelve clients, unless it is said who takes part."""
    cohort = cohort or {"explicit": [COHORT]}
    phase: dict[str, Any] = {"name": "p", "rounds": rounds, "cohort": cohort, "local": {"lr": 0.1, "batch_size": BATCH}}
    phase["local"] |= {"dp": local} if local else {}
    phase |= {"dp": dp, "algorithm": {"name": "fedavg", "weighting": "uniform"}} if dp else {}
    return {
        "name": "secure",
        "data": {"name": "tests.algorithms.scene:people"},
        "model": "tests.algorithms.scene:TanhNet",
        "phases": [phase],
        "checkpoint": {"rounds": 2},
    } | changes


def run(folder: Path, scenario: Any = None, fails_after: int = 0, **options: Any) -> rayfl.Result:
    """Runs a scenario, or resumes the run in the folder where none is given."""
    where: Any = {"resume": folder} if scenario is None else {"folder": folder}
    callbacks = [EndsAfter(name="ends", round=fails_after)] if fails_after else []
    options = {"console": Console(quiet=True)} | options
    return rayfl.run(scenario, backend="inline", callbacks=callbacks, **where, **options)


def fail(folder: Path, scenario: Any, after: int) -> None:
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(folder, scenario, after)


def entries(folder: Path) -> list[Any]:
    """Of the ledger: rounds that were charged, and in brackets those that the run went on after."""
    lines = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
    return [line["round"] if "round" in line else [line["goes_on_after"]] for line in lines]


def privacy(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "privacy.json").read_text())
    return content


def epsilon(orders: np.ndarray, *events: tuple[DpEvent, int]) -> float:
    """By Google's dp-accounting."""
    accountant = RdpAccountant(orders.tolist())
    for event, times in events:
        accountant.compose(event, times)
    return float(accountant.get_epsilon(DELTA))


def of_samples(participations: Counter[int], noise: float = 3.0) -> float:
    """The largest of any client's, after an epoch of DP-SGD in each of its rounds."""
    return max(
        epsilon(
            orders_of(secure=True),
            (PoissonSampledDpEvent(min(1.0, BATCH / size), GaussianDpEvent(noise)), times * -(-size // BATCH)),
        )
        for client, size in enumerate(SIZES)
        if (times := participations[client])
    )


@pytest.mark.parametrize("schedule", ["relay", "parallel"])
def test_a_round_is_on_disk_before_any_host_or_the_server_hears_of_it(
    schedule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, int]] = []
    synced: dict[int, int] = {}
    call, sync = _InlineWorker.call, os.fsync

    def seen(self: Any, method: str, *arguments: Any, **more: Any) -> Any:
        for index in arguments:
            if isinstance(index, RoundIndex) and method != "model_for":
                assert index.round in entries(tmp_path)
                ledger = (tmp_path / "ledger.jsonl").stat()
                assert synced[ledger.st_ino] == ledger.st_size
                called.append((method, index.round))
        return call(self, method, *arguments, **more)

    def noted(descriptor: int) -> None:
        sync(descriptor)
        synced[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_size

    monkeypatch.setattr(_InlineWorker, "call", seen)
    monkeypatch.setattr(os, "fsync", noted)
    scenario = tables(SAMPLES, cohort=3, rounds=3)
    scenario["phases"][0]["schedule"] = schedule
    run(tmp_path, scenario)
    assert {(("relay" if schedule == "relay" else "answer"), round) for round in (1, 2, 3)} <= set(called)
    assert entries(tmp_path) == [[0], 1, 2, 3]


def test_a_round_that_was_charged_stays_charged_though_the_process_is_killed_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process leaves the contents of its folder from before it closes anything."""
    folder = tmp_path / "killed"
    call = _InlineWorker.call

    def killed(self: Any, method: str, *arguments: Any, **more: Any) -> Any:
        if method == "answer" and arguments[0].round == 4:
            shutil.copytree(tmp_path / "run", folder)
            raise RuntimeError("left on purpose")
        return call(self, method, *arguments, **more)

    monkeypatch.setattr(_InlineWorker, "call", killed)
    with pytest.raises(RuntimeError, match="left on purpose"):
        run(tmp_path / "run", tables(SAMPLES))
    monkeypatch.setattr(_InlineWorker, "call", call)
    mark_lost(folder)
    assert entries(folder) == [[0], 1, 2, 3, 4]
    assert privacy(tmp_path / "run")["samples"]["charged_but_discarded"]["rounds"] == [4]
    with (folder / "ledger.jsonl").open("a") as ledger:
        ledger.write('{"round": 5, "cli')  # of a round that never began
    printed = io.StringIO()
    run(folder, console=Console(width=1000, file=printed))
    said = printed.getvalue()
    assert "noise after round 2 is drawn anew, so the result differs from that of an uninterrupted run" in said
    assert "epsilon counts all releases, including 2 discarded rounds" in said
    assert "after round 5, including 2 discarded rounds (see ledger.jsonl)" in said
    assert entries(folder) == [[0], 1, 2, 3, 4, [2], 3, 4, 5]
    assert [row["round"] for row in RunArchive(folder).rows] == [1, 2, 3, 4, 5]
    samples = privacy(folder)["samples"]
    assert samples["charged_but_discarded"]["rounds"] == [3, 4]
    expected = of_samples(Counter(dict.fromkeys(COHORT, 5 + 2)))
    assert samples["epsilon"]["maximum"] == pytest.approx(expected, rel=1e-6)
    assert RunArchive(folder).rows[-1]["epsilon"] == pytest.approx(expected, rel=1e-6)
    assert RunArchive(folder).rows[1]["epsilon"] < of_samples(Counter(dict.fromkeys(COHORT, 3)))  # of before the stop


@pytest.mark.parametrize("cohort", [{"bernoulli": 0.5}, {"explicit": [[0, 1], [0, 2], [3]]}], ids=["drawn", "known"])
def test_clients_are_charged_for_rounds_that_are_repeated(cohort: Any, tmp_path: Path) -> None:
    """Round 3 twice; of known participants those who take part most, of hidden ones everybody."""
    fail(tmp_path, tables(dp=CLIENTS, cohort=cohort), 3)
    run(tmp_path)
    assert entries(tmp_path) == [[0], 1, 2, 3, [2], 3, 4, 5]
    if "bernoulli" in cohort:
        event, times = PoissonSampledDpEvent(0.5, GaussianDpEvent(3.0)), 5 + 1
    else:  # one is replaced, so two contributions change; client 0 takes part in rounds 1, 2, 4 and 5
        event, times = GaussianDpEvent(1.5), 4
    clients = privacy(tmp_path)["clients"]
    assert clients["epsilon"] == pytest.approx(epsilon(LATTICE_ORDERS, (event, times)), rel=1e-6)
    assert clients["charged_but_discarded"]["rounds"] == [3]
    assert RunArchive(tmp_path).rows[-1]["client_epsilon"] == pytest.approx(clients["epsilon"])


def test_a_run_may_be_stopped_more_than_once_and_one_that_has_ended_be_extended(tmp_path: Path) -> None:
    """From round 2 it goes on twice, and what it had charged by then counts once."""
    fail(tmp_path, tables(SAMPLES, cohort={"explicit": [COHORT, [5], [7]]}), 3)
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tmp_path, fails_after=3)
    run(tmp_path)
    run(tmp_path, overrides={"phases.p.rounds": 6})
    assert entries(tmp_path) == [[0], 1, 2, 3, [2], 3, [2], 3, 4, 5, [5], 6]
    assert [row["round"] for row in RunArchive(tmp_path).rows] == [1, 2, 3, 4, 5, 6]
    samples = privacy(tmp_path)["samples"]
    assert samples["charged_but_discarded"]["rounds"] == [3, 3]
    taken = Counter(dict.fromkeys(COHORT, 2)) + Counter({5: 2, 7: 2 + 2})
    assert samples["epsilon"]["maximum"] == pytest.approx(of_samples(taken), rel=1e-6)


def test_a_run_that_ends_early_is_charged_for_all_that_began(tmp_path: Path) -> None:
    fail(tmp_path, tables(SAMPLES, checkpoint={"ends": False, "minutes": 0}), 2)
    ReleaseLedger.reopen(tmp_path, 2).charge(ChargedRound(0, 3, (0,)))  # as rounds that were submitted ahead
    said = io.StringIO()
    run(tmp_path, console=Console(width=1000, file=said))
    assert "has no checkpoint: the run starts over" in said.getvalue()
    assert entries(tmp_path) == [[0], 1, 2, 3, [0], 1, 2, 3, 4, 5]
    assert privacy(tmp_path)["samples"]["charged_but_discarded"]["rounds"] == [1, 2, 3]


def test_a_round_that_was_submitted_ahead_of_an_early_end_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Ray, where hosts shall not wait for the scheduler."""
    monkeypatch.setattr(InlineBackend, "rounds_ahead", 1)
    stops = StopAt(name="stops", round=2)
    rayfl.run(tables(SAMPLES), backend="inline", folder=tmp_path, callbacks=[stops], console=Console(quiet=True))
    assert entries(tmp_path) == [[0], 1, 2, 3]
    samples = privacy(tmp_path)["samples"]
    assert (samples["rounds"], samples["charged_but_discarded"]["rounds"]) == (2, [3])
    assert samples["epsilon"]["maximum"] == pytest.approx(of_samples(Counter(dict.fromkeys(COHORT, 3))), rel=1e-6)


def test_clients_whose_budget_the_repeated_rounds_have_spent_are_left_out(tmp_path: Path) -> None:
    """Enough for four rounds of the client that spends most, two of which are lost."""
    costs = {client: of_samples(Counter({client: 4})) for client in COHORT}
    most, least = max(costs, key=costs.__getitem__), min(costs, key=costs.__getitem__)
    budget = costs[most] * 1.001
    fail(tmp_path, tables(SAMPLES | {"max_epsilon": budget}, cohort={"explicit": [[most, least]]}), 4)
    assert privacy(tmp_path)["samples"]["left_out"]["number"] == 0
    run(tmp_path)
    samples = privacy(tmp_path)["samples"]
    assert samples["left_out"]["clients"] == [most]
    assert samples["epsilon"]["maximum"] == pytest.approx(max(costs[most], of_samples(Counter({least: 7}))))


@pytest.mark.parametrize("level", ["samples", "clients"])
def test_a_run_ends_before_the_round_that_would_exceed_its_target(level: str, tmp_path: Path) -> None:
    dp = {
        key: value for key, value in (SAMPLES if level == "samples" else CLIENTS).items() if key != "noise_multiplier"
    }
    dp["target_epsilon"] = 4.0
    fail(tmp_path, tables(local=dp) if level == "samples" else tables(dp=dp), 4)
    run(tmp_path)
    status, content = json.loads((tmp_path / "status.json").read_text()), privacy(tmp_path)[level]
    key = "local.dp.target_epsilon" if level == "samples" else "dp.target_epsilon"
    assert (status["status"], status["stopped"]["callback"], status["stopped"]["round"]) == ("finished", key, 3)
    said = f"would exceed {key}: the rounds that were repeated after a stop count twice"
    assert said in status["stopped"]["reason"]
    assert said in content["ended_early"]
    spent = content["epsilon"]["maximum"] if level == "samples" else content["epsilon"]
    assert 3.9 < spent <= 4.0
    assert content["charged_but_discarded"]["rounds"] == [3, 4]


def test_a_damaged_checkpoint_and_what_records_hold_beyond_the_one_before_are_left(tmp_path: Path) -> None:
    fail(tmp_path, tables(SAMPLES, checkpoint={"rounds": 1}), 4)
    newest = json.loads((tmp_path / "checkpoints" / "round-000000003.json").read_text())
    state = json.loads(newest["body"])["snapshot"]["server"]["latest"]["stored"]["place"]
    (tmp_path / "checkpoints" / "states" / state).unlink()
    run(tmp_path)
    assert entries(tmp_path) == [[0], 1, 2, 3, 4, [2], 3, 4, 5]
    assert [row["round"] for row in RunArchive(tmp_path).rows] == [1, 2, 3, 4, 5]


def _missing(ledger: Path) -> None:
    ledger.unlink()


def _empty(ledger: Path) -> None:
    ledger.write_text("")


def _changed(ledger: Path) -> None:
    ledger.write_text(ledger.read_text().replace('"round": 2', '"round": 7'))


def _line_lost(ledger: Path) -> None:
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join([lines[0], *lines[2:]]))


def _end_lost(ledger: Path) -> None:
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:-1]))


def _other_bytes(ledger: Path) -> None:
    ledger.write_bytes(b"\xff\x00\n" + ledger.read_bytes())


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("failed") / "run"
    fail(folder, tables(SAMPLES), 3)
    return folder


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (_missing, "No such file"),
        (_empty, "it is empty"),
        (_changed, "line 3: its digest does not match its content"),
        (_line_lost, "line 2: its digest does not match its content"),
        (_end_lost, "the run reached round 3, but its last entry is for round 2"),
        (_other_bytes, "line 1: "),
    ],
)
def test_a_run_whose_ledger_is_missing_or_damaged_does_not_go_on(damage: Any, complaint: str, failed: Path) -> None:
    ledger = failed / "ledger.jsonl"
    before = ledger.read_bytes()
    damage(ledger)
    try:
        with pytest.raises(ResourceError, match=rf"ledger.jsonl' is missing or damaged \({complaint}.*be resumed"):
            run(failed)
    finally:
        ledger.write_bytes(before)


def test_a_ledger_of_another_run_is_not_written_over(failed: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_bytes((failed / "ledger.jsonl").read_bytes())
    with pytest.raises(ResourceError, match=r"is the ledger of another run and records its releases"):
        run(tmp_path, tables(SAMPLES))


def test_without_room_for_its_entry_no_round_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: ReleaseLedger, charged: ChargedRound) -> None:
        (tmp_path / "ledger.jsonl").unlink()
        (tmp_path / "ledger.jsonl").mkdir()
        self._append({})

    monkeypatch.setattr(ReleaseLedger, "charge", full)
    with pytest.raises(ResourceError, match=r"cannot write the ledger .*charged before it begins, so none can begin"):
        run(tmp_path, tables(SAMPLES))
