"""Runs on simulated devices: who answers, when by the virtual clock, and the same bits however they are run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayfl.algorithms import Exchange, FedAvg, Messages, Round, RoundContext, ServerState, algorithms
from rayfl.engine.columns import simulated_columns
from rayfl.engine.events import RoundDone
from rayfl.engine.plan.cohort import cohort_of
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.totals import Simulated
from rayfl.errors import RayflError, ScenarioError
from rayfl.streams import client_stream
from tests.algorithms.scene import FOUR_ROUNDS, OF_ANY_SCENE, PARTIAL, SEED, SIZES, prepared, supported
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, continued, run_on_hosts, snapshot_of, without_clock

BYTES = 4 * (4 * 6 + 6 + 6 * 5 + 5 + 5 * 3 + 3)
"""Of the model: float32, three dense layers with biases."""

TROUBLED = {
    "steps_per_s": {"lognormal": [2, 1.0]},
    "up_bytes_per_s": {"uniform": [50, 500]},
    "dropout": 0.2,
    "availability": 0.8,
    "compute_watts": 2.0,
}
RELAY = {"schedule": "relay", "cohort": 5, "rounds": 3}


class Talkative(FedAvg):
    """Sends more in the third round than in those that are traced."""

    def round(self, server: ServerState, context: RoundContext) -> Round:
        more = 7 if context.round_in_phase == 3 else 0
        answers = yield Exchange(self.client_update, server.model, up=("model", more))
        self.apply(server, answers.mean("delta"))


class Understated(Talkative):
    """Declares less than it sends."""

    def messages(self) -> Messages:
        return [(("model",), ("params", 1))]


class Declaring(Talkative):
    """Declares more than it sends."""

    def messages(self) -> Messages:
        return [(("model",), ("model", 3))]


def job_of(algorithm: Any = "fedavg", phase: Any = None, **participation: Any) -> RunPlan:
    job, _ = prepared(
        algorithm, FOUR_ROUNDS, phase or {}, **({"participation": participation} if participation else {})
    )
    return job


def run(job: RunPlan, hosts: int = 1) -> tuple[np.ndarray, list[RoundDone]]:
    model, events = run_on_hosts(job, hosts)
    return model, [event for event in events if isinstance(event, RoundDone)]


def simulated(done: RoundDone) -> Simulated:
    assert done.simulated is not None
    return done.simulated


def device_file(path: Path, **columns: Any) -> str:
    pq.write_table(pa.table({"client": range(len(SIZES)), **columns}), path)
    return str(path)


def steps(client: int) -> int:
    """Two epochs of batches of six."""
    return 2 * -(-SIZES[client] // 6)


@pytest.mark.parametrize(("algorithm", "phase"), [("fedavg", {}), ("scaffold", {}), ("qfedavg", {}), ("fedavg", RELAY)])
def test_devices_without_troubles_change_no_bit(algorithm: str, phase: dict[str, Any]) -> None:
    plain, rounds = run(job_of(algorithm, phase))
    model, timed = run(job_of(algorithm, phase, dropout=0.0, steps_per_s=3.0))
    assert np.array_equal(model, plain)
    assert [(done.traffic, done.train_loss, done.steps) for done in timed] == [
        (done.traffic, done.train_loss, done.steps) for done in rounds
    ]
    assert all(done.simulated is None for done in rounds)


def test_rounds_take_the_seconds_and_joules_that_can_be_computed_by_hand() -> None:
    watts = {"compute_watts": 3.0, "transmit_watts": 0.5}
    _, rounds = run(job_of(steps_per_s=4.0, down_bytes_per_s=206.0, up_bytes_per_s=103.0, **watts))
    down, up = BYTES / 206, BYTES / 103
    seconds = joules = 0.0
    for done, cohort in zip(rounds, PARTIAL, strict=True):
        seconds += down + max(map(steps, cohort)) / 4 + up
        joules += sum(0.5 * (down + up) + 3.0 * steps(client) / 4 for client in cohort)
        assert simulated(done).seconds == pytest.approx(seconds)
        assert simulated(done).joules == pytest.approx(joules)
        spent = 0.5 * simulated(done).transfer + 3.0 * simulated(done).training  # type: ignore[operator]
        assert spent == pytest.approx(joules)
    _, hops = run(job_of(phase={"schedule": "relay"}, steps_per_s=4.0, up_bytes_per_s=103.0))
    total = sum(up + steps(client) / 4 for cohort in PARTIAL for client in cohort)
    assert simulated(hops[-1]).seconds == pytest.approx(total)
    in_transfer = sum(up for cohort in PARTIAL for _ in cohort)
    assert simulated(hops[-1]).transfer == pytest.approx(in_transfer)
    assert simulated(hops[-1]).training == pytest.approx(total - in_transfer)


@pytest.mark.parametrize("devices", [{"steps_per_s": 4.0}, {"up_bytes_per_s": 103.0}, {"dropout": 0.1}])
def test_transfer_and_training_are_told_apart_only_if_both_take_time(devices: dict[str, float]) -> None:
    _, rounds = run(job_of(**devices))
    last = simulated(rounds[-1])
    assert (last.transfer, last.training) == (None, None)
    assert not {"transfer_seconds", "training_seconds"} & simulated_columns(last).keys()


def test_two_exchanges_of_a_round_are_both_timed() -> None:
    _, rounds = run(job_of("qfedavg", steps_per_s=1.0, up_bytes_per_s=2.0))
    epoch = {client: steps(client) / 2 for client in range(len(SIZES))}
    first = [max(epoch[client] for client in cohort) + 4 / 2 for cohort in PARTIAL]
    second = [max(map(steps, cohort)) + (BYTES + 4) / 2 for cohort in PARTIAL]
    assert simulated(rounds[-1]).seconds == pytest.approx(sum(first) + sum(second))


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "qfedavg"])
def test_clients_that_drop_out_are_as_if_they_had_not_been_drawn(algorithm: str, tmp_path: Path) -> None:
    file = device_file(tmp_path / "devices.parquet", dropout=[float(client in (4, 9)) for client in range(len(SIZES))])
    model, rounds = run(job_of(algorithm, dropout={"file": file}), hosts=2)
    left = [[client for client in cohort if client not in (4, 9)] for cohort in PARTIAL]
    expected, without = run(job_of(algorithm, {"cohort": {"explicit": left}}))
    assert np.array_equal(model, expected)
    assert [simulated(done).dropped for done in rounds] == [1, 3, 4, 5]
    sent = BYTES if algorithm != "scaffold" else 2 * BYTES
    assert rounds[-1].traffic.up_bytes == without[-1].traffic.up_bytes
    assert rounds[-1].traffic.down_bytes == without[-1].traffic.down_bytes + 5 * sent


def test_a_relay_goes_on_past_clients_that_are_missing(tmp_path: Path) -> None:
    file = device_file(
        tmp_path / "devices.parquet",
        dropout=[float(client == 4) for client in range(len(SIZES))],
        availability=[float(client not in (0, 9)) for client in range(len(SIZES))],
    )
    files = {"dropout": {"file": file}, "availability": {"file": file}}
    model, rounds = run(job_of(phase={"schedule": "relay"}, steps_per_s=1.0, **files), hosts=3)
    left = [[client for client in cohort if client not in (0, 4, 9)] for cohort in PARTIAL]
    expected, _ = run(job_of(phase={"schedule": "relay", "cohort": {"explicit": left}}))
    assert np.array_equal(model, expected)
    assert simulated(rounds[-1]).unavailable == 4
    assert simulated(rounds[-1]).dropped == 3
    assert simulated(rounds[-1]).seconds == sum(steps(client) for cohort in PARTIAL for client in cohort if client % 9)


def test_with_over_selection_the_fastest_of_those_drawn_count(tmp_path: Path) -> None:
    pace = [7.0, 3, 11, 5, 2, 13, 1, 17, 6, 19, 4, 8]
    speed = {"steps_per_s": {"file": device_file(tmp_path / "devices.parquet", steps_per_s=pace)}}
    chosen = {"cohort": 4, "over_selection": 1.6}
    job = job_of(phase=chosen, **speed)
    model, rounds = run(job)
    expected, total = [], 0.0
    for round in range(1, FOUR_ROUNDS.rounds + 1):
        drawn = cohort_of(job.scenario.phases[0], SEED, RoundIndex(0, round, round), np.array(SIZES))
        assert len(drawn) == 7  # 6.4, rounded up
        fastest = sorted(drawn, key=lambda client: steps(client) / pace[client])[:4]
        total += steps(fastest[-1]) / pace[fastest[-1]]
        expected.append([client for client in drawn if client in fastest])
    assert np.array_equal(model, run(job_of(phase={"cohort": {"explicit": expected}}))[0])
    assert simulated(rounds[-1]).seconds == pytest.approx(total)
    assert simulated(rounds[-1]).late == 3 * FOUR_ROUNDS.rounds


def test_a_deadline_cuts_stragglers_and_a_round_without_answers_changes_nothing() -> None:
    _, rounds = run(job_of(phase={"deadline_s": 3.0}, steps_per_s=1.0))
    on_time = [[client for client in cohort if steps(client) <= 3] for cohort in PARTIAL]
    assert [done.client_updates for done in rounds] == [len(cohort) for cohort in on_time] == [1, 0, 2, 0]
    assert simulated(rounds[-1]).seconds == 3.0 * 4
    one, alone = run(job_of(phase={"cohort": {"explicit": [[0]]}, "rounds": 1}))
    assert rounds[0].train_loss == alone[0].train_loss
    cut, _ = run(job_of(phase={"deadline_s": 3.0, "rounds": 2}, steps_per_s=1.0))
    assert np.array_equal(cut, one)


def test_a_round_below_its_quorum_is_given_up() -> None:
    job = job_of(phase={"deadline_s": 3.0, "quorum": 3}, steps_per_s=1.0)
    model, rounds = run(job)
    assert np.array_equal(model, job.initial_models[0].vector)
    assert [done.client_updates for done in rounds] == [0] * FOUR_ROUNDS.rounds
    assert rounds[-1].traffic.up_bytes == BYTES * 3  # of those that answered in time, and were discarded
    assert rounds[-1].traffic.down_bytes == BYTES * sum(map(len, PARTIAL))


@pytest.mark.parametrize(("round", "ahead"), [(2, 2), (3, 0), (5, 2)])
def test_a_run_goes_on_with_its_virtual_time(round: int, ahead: int, tmp_path: Path) -> None:
    file = tmp_path / "sessions.parquet"
    begins = np.arange(len(SIZES)) * 4.0
    pq.write_table(pa.table({"client": range(len(SIZES)), "begins": begins, "ends": begins + 30.0}), file)
    local = dict(FOUR_ROUNDS.local)
    phases = [
        {"name": "cyclic", "local": local} | RELAY,
        {"name": "federated", "rounds": 3, "cohort": 6, "algorithm": "scaffold", "local": local},
    ]
    troubled = TROUBLED | {"availability": {"sessions": str(file), "repeat_s": 80.0}}
    job, _ = prepared("fedavg", FOUR_ROUNDS, {}, phases=phases, participation=troubled)
    whole, events = run_on_hosts(job, 1)
    store = MemoryStore()
    scheduler, _ = cast(job, 3)
    scheduler._backend.rounds_ahead = ahead  # type: ignore[misc]
    next(event for event in scheduler.run() if isinstance(event, RoundDone) and event.round == round)
    snapshot = snapshot_of(scheduler, store)
    model, later = continued(job, snapshot, store, 2)
    assert np.array_equal(model, whole)
    done = [event for event in without_clock(events) if "train_loss" in event and event["round"] > round]
    assert repr([event for event in without_clock(later) if "train_loss" in event]) == repr(done)


ONE_HOP = BYTES / 100
"""The seconds of any update, where 100 bytes a second come down and all else takes no time."""


def with_sessions(path: Path, begins: Any, ends: Any, phase: Any = None, **more: Any) -> RunPlan:
    whole = np.ones(len(SIZES)) * ONE_HOP
    file = device_file(path / "sessions.parquet", begins=begins * whole, ends=ends * whole)
    return job_of("fedavg", phase, down_bytes_per_s=100.0, availability={"sessions": file, **more})


def test_a_round_that_finds_nobody_waits_for_the_first_session(tmp_path: Path) -> None:
    _, rounds = run(with_sessions(tmp_path, 0.0, 1.5, repeat_s=10 * ONE_HOP))
    seconds = [simulated(done).seconds / ONE_HOP for done in rounds]
    assert seconds == pytest.approx([1, 2, 11, 12])  # the second and the fourth end after the session
    assert [done.client_updates > 0 for done in rounds] == [True, False, True, False]
    assert simulated(rounds[-1]).unavailable == 0
    _, over = run(with_sessions(tmp_path, 0.0, 1.5))
    assert [simulated(done).seconds / ONE_HOP for done in over] == pytest.approx([1, 2, 2, 2])


@pytest.mark.parametrize(
    "phase", [RELAY, {"schedule": "buffered", "rounds": 4, "cohort": 1.0, "concurrency": 3, "buffer": 2}, {}]
)
def test_a_run_whose_clients_come_later_only_begins_later(phase: Any, tmp_path: Path) -> None:
    late, rounds = run(with_sessions(tmp_path, 10.0, 1e6, phase))
    at_once, expected = run(job_of("fedavg", phase, down_bytes_per_s=100.0))
    assert np.array_equal(late, at_once)
    assert [simulated(done).seconds for done in rounds] == pytest.approx(
        [simulated(done).seconds + 10 * ONE_HOP for done in expected]
    )


def test_a_client_of_a_relay_need_not_be_there_before_its_hop(tmp_path: Path) -> None:
    begins = np.array([0.0, 0.5, 1.5] + [0.0] * (len(SIZES) - 3))
    phase = RELAY | {"cohort": {"explicit": [[0, 1, 2]]}}
    model, rounds = run(with_sessions(tmp_path, begins, 1e6, phase))
    assert np.array_equal(model, run(job_of("fedavg", phase))[0])
    assert simulated(rounds[0]).seconds == pytest.approx(3 * ONE_HOP)
    assert simulated(rounds[0]).unavailable == 0


def test_dropout_and_availability_have_separate_streams() -> None:
    _, rounds = run(job_of(dropout=0.4, availability=0.6))
    away = lost = 0
    for number, (done, cohort) in enumerate(zip(rounds, PARTIAL, strict=True), start=1):

        def draw(purpose: str, client: int, round: int = number) -> float:
            return float(client_stream(SEED, purpose, 0, round, client).random())

        there = [client for client in cohort if draw("availability", client) < 0.6]
        away += len(cohort) - len(there)
        lost += sum(draw("dropout", client) < 0.4 for client in there)
        assert (simulated(done).unavailable, simulated(done).dropped) == (away, lost)
    assert away
    assert lost


TAKES_PENALTIES = [
    name
    for name in OF_ANY_SCENE
    if "penalties" in algorithms.resolve(name).model_fields
    and name not in ("fedprox", "feddecorr")  # their own penalty
]


@pytest.mark.parametrize("name", TAKES_PENALTIES)
def test_a_first_model_that_clients_read_is_one_more_model_down_for_each_that_trains(name: str) -> None:
    phase = {"rounds": 2, "local": supported(name, FOUR_ROUNDS.local)}
    sent = 4 * 65 if name in ("fedbabu", "fedper") else BYTES  # these never send the last layer
    anchored = {"name": name, "penalties": [{"name": "contrastive", "first": "initial"}]}
    _, without = run(job_of(name, phase, down_bytes_per_s=10.0))
    _, rounds = run(job_of(anchored, phase, down_bytes_per_s=10.0), hosts=2)
    for done, plain in zip(rounds, without, strict=True):
        updates = sum(map(len, PARTIAL[: done.round]))
        assert done.traffic.down_bytes - plain.traffic.down_bytes == updates * sent
        assert done.traffic.up_bytes == plain.traffic.up_bytes
        assert simulated(done).seconds - simulated(plain).seconds == pytest.approx(done.round * sent / 10)


@pytest.mark.parametrize("transforms", [["top_k"], ["quantize"], [{"name": "top_k", "share": 0.1}, "quantize"]])
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_transforms_shorten_the_way_up(algorithm: str, transforms: list[Any]) -> None:
    job = job_of(algorithm, {"transforms": transforms}, up_bytes_per_s=50.0)
    _, rounds = run(job)
    up = rounds[-1].traffic.up_bytes / sum(map(len, PARTIAL))
    assert simulated(rounds[-1]).seconds == pytest.approx(len(PARTIAL) * up / 50)
    assert up < BYTES * (2 if algorithm == "scaffold" else 1)


def test_local_and_central_phases_move_nothing_and_the_server_takes_no_time() -> None:
    local = dict(FOUR_ROUNDS.local)
    phases = [
        {"name": "pooled", "schedule": "central", "rounds": 1, "local": local},
        {"name": "alone", "schedule": "local", "rounds": 2, "local": local},
    ]
    fast = {"steps_per_s": 2.0, "up_bytes_per_s": 10.0}
    _, rounds = run(prepared("fedavg", FOUR_ROUNDS, {}, phases=phases, participation=fast)[0])
    slowest = max(map(steps, range(len(SIZES)))) / 2
    assert [simulated(done).seconds for done in rounds] == [0.0, slowest, 2 * slowest]
    assert rounds[-1].traffic.bytes == 0


def test_a_round_that_moves_something_else_than_planned_ends_the_run() -> None:
    job, _ = prepared("tests.engine.test_participation:Talkative", FOUR_ROUNDS, {}, participation={"dropout": 0.1})
    with pytest.raises(RayflError, match=r"round 3 moved \d+ bytes up for \d client updates, but the virtual clock of"):
        run(job)


@pytest.mark.parametrize("kind", [Understated, Declaring])
def test_a_declaration_that_differs_from_the_rounds_is_rejected_beforehand(kind: type) -> None:
    said = r"^phases\.federated: round 2 moved \d+ bytes up for 1 client updates, but the virtual clock of .* planned"
    with pytest.raises(ScenarioError, match=said):
        prepared(f"tests.engine.test_participation:{kind.__name__}", FOUR_ROUNDS, {}, participation={"dropout": 0.1})
