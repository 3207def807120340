"""Asynchronous schedules against event-by-event simulations in float64, written from the papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rayfl.algorithms import Exchange, FedAvg, Penalty, Round, RoundContext, ServerState
from rayfl.algorithms.exchange import Part
from rayfl.engine.events import Event, RoundDone
from rayfl.engine.plan.cohort import cohort_of
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.totals import Simulated
from rayfl.errors import ScenarioError
from rayfl.local.context import ClientContext
from rayfl.local.requests import Affine
from rayfl.models.flat import FlatModel
from rayfl.schedules import Asynchronous, AsynchronousPhase, Staleness, Submitted
from tests.algorithms.reference import PlainUpdate, assert_equal, assert_equal_and_unlike, linear
from tests.algorithms.scene import FULL, PLAIN, SEED, SIZES, prepared
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, continued, run_on_hosts, snapshot_of, without_clock

CLIENTS = len(SIZES)
SPEEDS = (1.0, 3.0, 0.5, 2.0, 1.0, 4.0, 0.25, 1.5, 2.0, 0.7, 5.0, 1.0)
"""Steps in a virtual second; some clients are twenty times as slow as others."""
SILENT = (2, 7, 10)
"""Who never answers, where somebody drops out."""
ROUNDS = 12
BUFFERED: dict[str, Any] = {"schedule": "buffered", "rounds": ROUNDS, "cohort": 1.0, "concurrency": 5, "buffer": 2}
MIXED: dict[str, Any] = {"schedule": "asynchronous", "rounds": ROUNDS, "cohort": 1.0, "concurrency": 5, "mixing": 0.6}
UNIFORM = {"name": "fedavg", "weighting": "uniform"}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with these speeds, and of who never answers."""
    path = tmp_path_factory.mktemp("devices") / "devices.parquet"
    silent = [float(client in SILENT) for client in range(CLIENTS)]
    pq.write_table(pa.table({"client": range(CLIENTS), "steps_per_s": SPEEDS, "dropout": silent}), path)
    return str(path)


@pytest.fixture(scope="module")
def traced(traces: str) -> dict[str, Any]:
    """[participation] with these speeds."""
    return {"steps_per_s": {"file": traces}}


def made(devices: Mapping[str, Any], algorithm: Any = UNIFORM, **phase: Any) -> tuple[RunPlan, FlatModel]:
    return prepared(algorithm, PLAIN, phase or BUFFERED, participation=dict(devices))


def flat(model: FlatModel, vector: np.ndarray) -> torch.Tensor:
    return torch.cat([part.flatten() for part in model.state_dict(torch.from_numpy(vector)).values()]).double()


def simulated_by(event: RoundDone) -> Simulated:
    assert event.simulated is not None
    return event.simulated


def rounds_of(events: Sequence[Event]) -> list[RoundDone]:
    return [event for event in events if isinstance(event, RoundDone)]


Step = Callable[[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor, int, int]]], torch.Tensor]
"""From w and, for each answer, the model that the client began with, what it made of it, tau and its samples: new w."""


def simulated(
    job: RunPlan, concurrency: int, buffer: int, step: Step, silent: Sequence[int] = (), pull: float = 0.0
) -> tuple[torch.Tensor, list[float], list[list[int]]]:
    """A moment of virtual time after the other; returns the model, and the time and the staleness of each step.

    pull: weight of a client's squared distance from the first model in its objective.
    """
    w, now, done = PLAIN.initial(), 0.0, 0
    towards_first = linear(torch.zeros_like(w), pull, w)
    training: dict[int, tuple[float, int, torch.Tensor]] = {}
    pending: list[tuple[torch.Tensor, torch.Tensor, int, int]] = []
    times: list[float] = []
    ages: list[list[int]] = []
    begun: set[tuple[int, int]] = set()
    while True:
        for client in sorted(client for client, (ends, _, _) in training.items() if ends == now):
            _, began, base = training.pop(client)
            if client in silent:
                continue
            pending.append(
                (
                    base,
                    PlainUpdate(PLAIN, client, began + 1).sgd(base, penalty=towards_first),
                    done - began,
                    SIZES[client],
                )
            )
            if len(pending) == buffer:
                w = step(w, pending)
                ages.append([tau for _, _, tau, _ in pending])
                times.append(now)
                pending = []
                done += 1
                if done == ROUNDS:
                    return w, times, ages
        order = cohort_of(job.scenario.phases[0], SEED, RoundIndex(0, done + 1, done + 1), np.array(SIZES))
        for client in order:
            if len(training) < concurrency and client not in training and (client, done) not in begun:
                steps = 2 * ceil(SIZES[client] / PLAIN.local["batch_size"])
                training[client] = now + steps / SPEEDS[client], done, w
                begun.add((client, done))
        now = min(ends for ends, _, _ in training.values())


def adds(discount: Callable[[int], float], by_size: bool = False) -> Step:
    """FedBuff, Algorithm 1."""

    def step(w: torch.Tensor, answers: list[tuple[torch.Tensor, torch.Tensor, int, int]]) -> torch.Tensor:
        weights = [float(samples) if by_size else 1.0 for *_, samples in answers]
        for weight, (base, trained, tau, _) in zip(weights, answers, strict=True):
            w = w + weight / sum(weights) * discount(tau) * (trained - base)
        return w

    return step


def mixes(mixing: float, discount: Callable[[int], float]) -> Step:
    """FedAsync, Algorithm 1."""

    def step(w: torch.Tensor, answers: list[tuple[torch.Tensor, torch.Tensor, int, int]]) -> torch.Tensor:
        ((_, trained, tau, _),) = answers
        share = mixing * discount(tau)
        return (1 - share) * w + share * trained

    return step


def root(tau: int) -> float:
    return float((1 + tau) ** -0.5)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_a_buffer_adds_the_discounted_mean_of_changes_from_older_models(weighting: str, traced: dict[str, Any]) -> None:
    job, model = made(traced, {"name": "fedavg", "weighting": weighting})
    vector, events = run_on_hosts(job, 2)
    expected, times, ages = simulated(job, 5, 2, adds(root, weighting == "samples"))
    plain, _, _ = simulated(job, 5, 2, adds(lambda tau: 1.0, weighting == "samples"))
    assert_equal_and_unlike(flat(model, vector), expected, plain, PLAIN)
    done = rounds_of(events)
    assert [event.scalars["mean_staleness"] for event in done] == [sum(taus) / 2 for taus in ages]
    assert [event.scalars["max_staleness"] for event in done] == [max(taus) for taus in ages]
    assert max(max(taus) for taus in ages) >= 3
    assert [event.client_updates for event in done] == [2] * ROUNDS
    assert [simulated_by(event).seconds for event in done] == pytest.approx(times)


@pytest.mark.parametrize(
    ("staleness", "discount"),
    [
        ("constant", lambda tau: 1.0),
        ({"name": "polynomial", "exponent": 0.8}, lambda tau: (tau + 1) ** -0.8),
        ({"name": "hinge", "slope": 2.0, "delay": 1}, lambda tau: 1.0 if tau <= 1 else 1 / (2 * (tau - 1) + 1)),
    ],
    ids=["constant", "polynomial", "hinge"],
)
def test_every_answer_is_mixed_into_the_model_of_its_time(
    staleness: Any, discount: Callable[[int], float], traced: dict[str, Any]
) -> None:
    job, model = made(traced, **MIXED, staleness=staleness)
    vector, events = run_on_hosts(job, 2)
    expected, times, _ = simulated(job, 5, 1, mixes(0.6, discount))
    added, _, _ = simulated(job, 5, 1, adds(lambda tau: 0.6 * discount(tau)))
    assert_equal_and_unlike(flat(model, vector), expected, added, PLAIN)
    assert [simulated_by(event).seconds for event in rounds_of(events)] == pytest.approx(times)


class TowardsFirst(Penalty):
    """Pulls a client's model towards the phase's first, without a state of the client."""

    name: str = "towards first"
    pull: float = 0.5

    def reads_first_model(self) -> bool:
        return True

    def affine(self, client: ClientContext, start: torch.Tensor) -> Affine:
        assert client.first_model is not None
        return Affine(quadratic=self.pull, centre=client.first_model[: client.num_params])


@pytest.mark.parametrize(("phase", "buffer"), [(BUFFERED, 2), (MIXED, 1)], ids=["buffered", "asynchronous"])
def test_a_penalty_may_read_the_first_model_which_travels_with_the_current_one(
    phase: dict[str, Any], buffer: int, traced: dict[str, Any]
) -> None:
    algorithm = UNIFORM | {"penalties": [{"name": f"{__name__}:TowardsFirst", "pull": 0.5}]}
    job, model = made(traced, algorithm, **phase, staleness="polynomial")
    vector, events = run_on_hosts(job, 1)
    assert np.array_equal(run_on_hosts(job, 2)[0], vector)
    step = adds(root) if buffer == 2 else mixes(0.6, root)
    expected, times, _ = simulated(job, 5, buffer, step, pull=0.5)
    plain, _, _ = simulated(job, 5, buffer, step)
    assert_equal_and_unlike(flat(model, vector), expected, plain, PLAIN)
    done = rounds_of(events)
    assert [simulated_by(event).seconds for event in done] == pytest.approx(times)
    params = len(PLAIN.initial())
    assert [event.traffic.up_bytes for event in done] == [4 * params * buffer * event.round for event in done]
    assert [event.traffic.down_bytes for event in done] == [2 * 4 * params * buffer * event.round for event in done]


def test_discounts_by_hand() -> None:
    taus = range(7)
    assert [Staleness(name="constant").discount(tau) for tau in taus] == [1.0] * 7
    polynomial = Staleness(name="polynomial", exponent=2.0)
    assert [polynomial.discount(tau) for tau in taus] == pytest.approx(
        [1, 1 / 4, 1 / 9, 1 / 16, 1 / 25, 1 / 36, 1 / 49]
    )
    hinge = Staleness(name="hinge", slope=10.0, delay=4)
    assert [hinge.discount(tau) for tau in taus] == pytest.approx([1, 1, 1, 1, 1, 1 / 11, 1 / 21])
    assert Staleness(name="polynomial").discount(3) == 0.5


def test_equal_speeds_and_a_buffer_for_all_are_federated_averaging() -> None:
    """Everybody trains, all answers come at once, and the server steps by their mean: closed form FedAvg."""
    setting = FULL.with_local(steps=2)
    phase = {"schedule": "buffered", "cohort": 1.0, "concurrency": CLIENTS, "buffer": CLIENTS}
    job, _ = prepared("fedavg", setting, phase, participation={"steps_per_s": 1.0})
    vector, events = run_on_hosts(job, 2)
    synchronous, _ = run_on_hosts(prepared("fedavg", setting)[0], 1)
    assert np.array_equal(vector, synchronous)
    assert [event.scalars["max_staleness"] for event in rounds_of(events)] == [0.0] * FULL.rounds
    assert [simulated_by(event).seconds for event in rounds_of(events)] == [2.0, 4.0]


def test_one_client_at_a_time_that_replaces_the_model_is_a_relay(traced: dict[str, Any]) -> None:
    """With alpha = 1 and nobody beside it, w <- w_i: each client starts from what the one before produced."""
    job, model = made(traced, **MIXED | {"concurrency": 1, "mixing": 1.0})
    vector, _ = run_on_hosts(job, 2)
    w = PLAIN.initial()
    for round in range(1, ROUNDS + 1):
        first, *_ = cohort_of(job.scenario.phases[0], SEED, RoundIndex(0, round, round), np.array(SIZES))
        w = PlainUpdate(PLAIN, first, round).sgd(w)
    assert_equal(flat(model, vector), w, PLAIN)


def test_a_dropout_is_sent_a_model_and_makes_room(traces: str, traced: dict[str, Any]) -> None:
    job, model = made(traced | {"dropout": {"file": traces}})
    vector, events = run_on_hosts(job, 2)
    expected, times, _ = simulated(job, 5, 2, adds(root), SILENT)
    assert_equal(flat(model, vector), expected, PLAIN)
    *_, last = rounds_of(events)
    assert simulated_by(last).seconds == pytest.approx(times[-1])
    bytes_of_model = 4 * len(PLAIN.initial())
    assert simulated_by(last).dropped > 0
    assert last.traffic.up_bytes == 2 * ROUNDS * bytes_of_model
    assert last.traffic.down_bytes == (2 * ROUNDS + simulated_by(last).dropped) * bytes_of_model


@pytest.mark.parametrize("phase", [BUFFERED, MIXED], ids=["buffered", "asynchronous"])
def test_the_model_stays_if_no_client_ever_answers(phase: dict[str, Any]) -> None:
    job, model = made({"steps_per_s": 1.0, "dropout": 1.0}, **phase | {"rounds": 2})
    vector, events = run_on_hosts(job, 2)
    assert torch.equal(flat(model, vector), PLAIN.initial())
    assert [simulated_by(event).dropped for event in rounds_of(events)] == [CLIENTS, 2 * CLIENTS]
    assert [event.client_updates for event in rounds_of(events)] == [0, 0]


def test_hosts_share_the_updates_of_a_schedule_that_takes_in_one_at_a_time(traced: dict[str, Any]) -> None:
    scheduler, _ = cast(made(traced, **MIXED)[0], 3)
    scheduler._backend.rounds_ahead = 1  # type: ignore[misc]
    ran: list[int] = []
    for number, host in enumerate(scheduler._backend.hosts):
        target = host._target  # type: ignore[attr-defined]
        target._begins = lambda group, number=number: ran.append(number)
    list(scheduler.run())
    assert ROUNDS <= len(ran) <= ROUNDS + 2 * 3
    assert min(ran.count(number) for number in range(3)) >= ROUNDS // 3 - 1


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("phase", [BUFFERED, MIXED], ids=["buffered", "asynchronous"])
def test_a_run_goes_on_after_any_round_with_updates_in_flight(
    phase: dict[str, Any], ahead: int, traced: dict[str, Any]
) -> None:
    local, last = dict(PLAIN.local), 5
    job, _ = prepared("fedadam", PLAIN, {}, participation=traced | {"dropout": 0.2}, phases=[
        {"name": "first", "algorithm": "fedadam", "local": local} | phase | {"rounds": last},
        {"name": "after", "rounds": 1, "cohort": 3, "local": local},
    ])  # fmt: skip
    whole, events = run_on_hosts(job, 1)
    store = MemoryStore()
    scheduler, _ = cast(job, 3)
    scheduler._backend.rounds_ahead = ahead  # type: ignore[misc]
    snapshots = [snapshot_of(scheduler, store) for event in scheduler.run() if isinstance(event, RoundDone)]
    for round, snapshot in enumerate(snapshots, start=1):
        began = {update[2] for update in snapshot.in_flight.get("updates", ())}
        assert snapshot.server.open.keys() == (began if round < last else set())
        model, later = continued(job, snapshot, store, 2)
        assert np.array_equal(model, whole)
        assert repr(without_clock(rounds_of(later))) == repr(without_clock(rounds_of(events)[round:]))


def test_a_finished_run_goes_on_for_more_rounds(traced: dict[str, Any]) -> None:
    """What is in flight at the end of the last phase is kept for that."""
    short, long = (made(traced, "fedadam", **BUFFERED | {"rounds": rounds})[0] for rounds in (4, 7))
    whole, events = run_on_hosts(long, 1)
    store = MemoryStore()
    scheduler, _ = cast(short, 1)
    done = rounds_of(list(scheduler.run()))
    assert repr(without_clock(done)) == repr(without_clock(rounds_of(events)[:4]))
    snapshot = snapshot_of(scheduler, store)
    model, later = continued(long, snapshot, store, 2)
    assert np.array_equal(model, whole)
    assert repr(without_clock(rounds_of(later))) == repr(without_clock(rounds_of(events)[4:]))


def test_the_server_forgets_rounds_that_no_client_will_answer(traced: dict[str, Any]) -> None:
    scheduler, server = cast(made(traced)[0], 1)
    for event in scheduler.run():
        if isinstance(event, RoundDone):
            assert len(server._began_from) <= BUFFERED["concurrency"]
            assert len(server._rounds) == 0


class HalvedPhase(AsynchronousPhase):
    staleness: Staleness = Staleness(name="constant")


class Halved(Asynchronous):
    """A schedule of a user's own: every answer counts half, however old it is."""

    config = HalvedPhase
    noun = "halved phase"

    def step(self, index: RoundIndex, answered: Sequence[Submitted]) -> Any:
        scalars, _ = self.backend.server.call("receive", index, [0.5], *[each.part for each in answered], returns=2)
        return scalars


def test_a_users_own_schedule_says_how_the_server_steps(traced: dict[str, Any]) -> None:
    phase = {"schedule": f"{__name__}:Halved", "rounds": ROUNDS, "cohort": 1.0, "concurrency": 5}
    job, model = made(traced, **phase)
    vector, _ = run_on_hosts(job, 2)
    expected, _, _ = simulated(job, 5, 1, adds(lambda tau: 0.5))
    assert_equal(flat(model, vector), expected, PLAIN)


class Twice(FedAvg):
    """Sends the model twice in its first round."""

    def round(self, server: ServerState, context: RoundContext) -> Round:
        once: tuple[Part, ...] = ("model",)
        down = once + once if context.round_in_phase == 1 else once
        answers = yield Exchange(self.client_update, server.model, down=down)
        self.apply(server, self.aggregated(server, answers))


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ("scaffold", BUFFERED, r"phases.federated.algorithm: clients of 'scaffold' keep state \(control\), which"),
    (
        "fedmeta",
        MIXED | {"local": {"lr": 0.1}},
        r"phases.federated.algorithm: clients of 'fedmeta' do not answer with a model that",
    ),
    (UNIFORM | {"aggregation": "median"}, BUFFERED, r"algorithm.aggregation: 'median' compares updates, but these"),
    (
        {"name": f"{__name__}:Twice"},
        BUFFERED,
        r"phases.federated.algorithm: '.*:Twice' sends something else in its first round, whose updates",
    ),
    (UNIFORM, BUFFERED | {"cohort": 4}, r"phases.federated.concurrency: 5 is more than the candidates of a round"),
    (UNIFORM, BUFFERED | {"buffer": 13}, r"phases.federated.buffer: 13 is more than the candidates of a round"),
    (UNIFORM, BUFFERED | {"mixing": 0.5}, r"phases.federated.mixing: has no effect with this schedule; leave it out"),
    (UNIFORM, MIXED | {"buffer": 2}, r"phases.federated.buffer: has no effect with this schedule; leave it out"),
    (
        UNIFORM,
        BUFFERED | {"dp": {"level": "central"}},
        r"phases.federated.dp: has no effect with this schedule; leave it out",
    ),
    (
        UNIFORM,
        MIXED | {"deadline_s": 5.0},
        r"phases.federated.deadline_s: has no effect with this schedule; leave it out",
    ),
    (
        UNIFORM,
        MIXED | {"over_selection": 1.5},
        r"phases.federated.over_selection: has no effect with this schedule; leave",
    ),
    (UNIFORM, BUFFERED | {"staleness": "linear"}, r"phases.federated.staleness"),
    (UNIFORM, BUFFERED | {"staleness": {"name": "constant", "delay": 2}}, r"delay has no effect with 'constant'"),
    (UNIFORM, BUFFERED | {"eval_model": "participants"}, r"eval_model: 'participants' averages the clients' models"),
    (
        UNIFORM,
        BUFFERED | {"local": {"dp": {"noise_multiplier": 1.0, "max_grad_norm": 1.0}}},
        r"phases.federated.local.dp: privacy is accounted in the round in which an update begins, but here",
    ),
]


@pytest.mark.parametrize(("algorithm", "phase", "complaint"), REFUSED, ids=[case[2][:60] for case in REFUSED])
def test_options_that_do_not_work_asynchronously_are_rejected_by_name(
    algorithm: Any, phase: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        made({"steps_per_s": 1.0}, algorithm, **phase)


@pytest.mark.parametrize("devices", [{}, {"participation": {"dropout": 0.1}}], ids=["none", "no speeds"])
def test_a_schedule_by_the_clock_needs_one(devices: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError, match=r"phases.federated.schedule: 'buffered' needs a virtual clock to order"):
        prepared(UNIFORM, PLAIN, BUFFERED, **devices)


def test_groups_of_clients_have_no_effect_where_answers_come_one_by_one() -> None:
    with pytest.raises(
        ScenarioError, match=r"numerics.clients_at_once: 2 has no effect, since .* one client after the"
    ):
        prepared(UNIFORM, PLAIN, MIXED, participation={"steps_per_s": 1.0}, numerics={"clients_at_once": 2})
