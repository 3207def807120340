"""Which model is evaluated, against what clients were seen to receive and to return, whatever the algorithm."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.local_training import LocalTrainingAlgorithm
from rayfl.algorithms.penalty import Penalty
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.engine.events import RoundDone
from rayfl.errors import ClientError, RayflError
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate, LocalTraining
from tests.algorithms.scene import PLAIN, SIZES, Setting, prepared
from tests.engine.scenes import run_on_hosts

SEEN: list[tuple[int, int, torch.Tensor, torch.Tensor]] = []
"""(round, client, received model, returned model) of every training request, in order."""


class Recording(Penalty):
    """No penalty: it writes down what a client trains from and what it returns."""

    def affine(self, client: ClientContext, start: torch.Tensor) -> None:
        SEEN.append((client.streams.round, client.id, start.clone(), start))

    def after_training(self, client: ClientContext, trained: torch.Tensor) -> None:
        SEEN[-1] = (*SEEN[-1][:3], trained.clone())


KNOWN: dict[str, tuple[np.ndarray, list[tuple[int, int, torch.Tensor, torch.Tensor]]]] = {}
"""What `seen` found, by its arguments: many tests ask for the same run."""


def seen(algorithm: Any, rule: str, setting: Setting = PLAIN) -> np.ndarray:
    """Runs the algorithm and records its clients; returns the model that rayfl evaluates in the end."""
    key = f"{algorithm} {rule} {setting}"
    if key not in KNOWN:
        KNOWN[key] = _run(algorithm, rule, setting), list(SEEN)
    model, SEEN[:] = KNOWN[key]
    return model


def _run(algorithm: Any, rule: str, setting: Setting) -> np.ndarray:
    named = {"name": algorithm} if isinstance(algorithm, str) else algorithm
    watched = named | {"penalties": [f"{__name__}:Recording"]}
    job, _ = prepared(watched, setting, {"eval_model": rule})
    SEEN.clear()  # of the trace
    vector, events = run_on_hosts(job, 2)
    assert len([event for event in events if isinstance(event, RoundDone)]) == setting.rounds
    return vector.astype(np.float64)


def expected(rule: str, setting: Setting = PLAIN, by_samples: bool = False) -> np.ndarray:
    """By the rule's definition, from the recorded models."""
    last_round = max(round for round, *_ in SEEN)
    initial = next(start for round, _, start, _ in SEEN if round == 1).double().numpy()
    if rule == "all":
        latest = dict.fromkeys(range(setting.clients), initial)
        latest |= {client: trained.double().numpy() for _, client, _, trained in SEEN}
        mean: np.ndarray = np.mean(list(latest.values()), axis=0)
        return mean
    returned = {client: trained.double().numpy() for round, client, _, trained in SEEN if round == last_round}
    weights = [SIZES[client] if by_samples else 1 for client in returned]
    return np.average(list(returned.values()), axis=0, weights=weights)


def assert_close_for_what_training_did(ours: np.ndarray, theirs: np.ndarray) -> None:
    moved = np.linalg.norm(theirs - SEEN[0][2].double().numpy())
    assert moved > 0.05
    assert np.linalg.norm(ours - theirs) < 1e-5 * moved


ALGORITHMS: dict[str, tuple[Any, bool]] = {
    "fedavg": ("fedavg", True),
    "fedavg-uniform": ({"name": "fedavg", "weighting": "uniform"}, False),
    "fednova": ("fednova", True),
    "fedexp": ("fedexp", False),
    "feddyn": ({"name": "feddyn", "alpha": 0.2}, False),
    "scaffold": ("scaffold", False),
    "scaffold-samples": ({"name": "scaffold", "weighting": "samples"}, True),
    "fedadam": ("fedadam", True),
    "qfedavg": ("qfedavg", False),
}
"""And whether it weights participants by their samples."""


@pytest.mark.parametrize("rule", ["participants", "all"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_mean_of_what_clients_returned(name: str, rule: str) -> None:
    """Weighted as the algorithm weights its participants; over all clients, each counts alike."""
    algorithm, by_samples = ALGORITHMS[name]
    ours = seen(algorithm, rule)
    assert_close_for_what_training_did(ours, expected(rule, by_samples=by_samples))


@pytest.mark.parametrize("name", ["fedavg", "fedexp", "fedadam"])
def test_the_mean_of_the_last_two_global_models(name: str) -> None:
    """What clients receive in a round is the global model after the one before: plain, extrapolated, with a memory."""
    algorithm, _ = ALGORITHMS[name]
    longer = Setting(PLAIN.cohorts, PLAIN.rounds + 1, PLAIN.local)
    after_last = seen(algorithm, "global")
    average = seen(algorithm, "average")
    before_last = SEEN[-1][2].double().numpy()
    assert_close_for_what_training_did(average, (after_last + before_last) / 2)
    seen(algorithm, "global", longer)
    assert np.array_equal(SEEN[-1][2].double().numpy(), after_last), "the next round starts from the global model"


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedadam"])
def test_the_exponential_moving_average_of_the_global_models(name: str) -> None:
    """In float64 from the first round's model on; a client's start in a round is the model after the one before."""
    algorithm, _ = ALGORITHMS[name]
    decay, last = 0.7, seen(algorithm, "global")
    received = {round: start.double().numpy() for round, _, start, _ in SEEN}
    models = [*(received[round] for round in range(2, PLAIN.rounds + 1)), last]
    expected = models[0]
    for model in models[1:]:
        expected = decay * expected + (1 - decay) * model
    job, _ = prepared(algorithm, PLAIN, {"eval_model": "ema", "ema_decay": decay})
    ours, _ = run_on_hosts(job, 2)
    assert np.array_equal(ours, expected.astype(np.float32))
    assert np.linalg.norm(ours - last) > 0.01


def test_the_moving_average_is_handed_to_the_next_phase() -> None:
    phases = [
        {"name": name, "rounds": rounds, "cohort": 5, "algorithm": algorithm, "local": dict(PLAIN.local), **more}
        for name, rounds, algorithm, more in (
            ("first", 3, "fedavg", {"eval_model": "ema", "ema_decay": 0.6}),
            ("second", 1, f"{__name__}:Idle", {}),
        )
    ]
    alone, both = (run_on_hosts(prepared("fedavg", PLAIN, phases=part)[0], 1)[0] for part in (phases[:1], phases))
    assert np.array_equal(alone, both), "the second phase changes nothing"


@pytest.mark.parametrize("name", ["fedavg", "feddyn"])
def test_training_goes_on_from_the_global_model_whatever_is_evaluated(name: str) -> None:
    algorithm, _ = ALGORITHMS[name]
    runs = []
    for rule in ("global", "average", "participants", "all", "ema"):
        seen(algorithm, rule)
        runs.append({(round, client): trained for round, client, _, trained in SEEN})
    for other in runs[1:]:
        assert other.keys() == runs[0].keys()
        assert all(torch.equal(trained, other[key]) for key, trained in runs[0].items())


class Reusing(FedAvg):
    """Changes what it was given in place, since results are the algorithm's own."""

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        trained = yield from self.train(client, model)
        trained -= model
        return Answer(self.weight(client), delta=trained)

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        self.apply(server, answers.mean("delta"))


@pytest.mark.parametrize("rule", ["participants", "all"])
def test_an_algorithm_may_reuse_the_trained_vector(rule: str) -> None:
    ours = seen(f"{__name__}:Reusing", rule)
    assert_close_for_what_training_did(ours, expected(rule, by_samples=True))


class TrainsTwice(LocalTrainingAlgorithm):
    """Clients train in the first two of three exchanges, the second time from the mean of the first."""

    exchanges: ClassVar[int] = 3

    def round(self, server: ServerState, context: RoundContext) -> Round:
        for _ in range(2):
            answers = yield Exchange(self.client_update, server.model)
            server.apply_update(answers.mean("delta"))
        yield Exchange(self.farewell)

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        return Answer(delta=(yield from self.train(client, model)) - model)

    def farewell(self, client: ClientContext) -> Answer:
        return Answer(number=torch.ones(1))


@pytest.mark.parametrize("rule", ["participants", "all"])
def test_the_last_training_of_a_round_counts(rule: str) -> None:
    ours = seen(f"{__name__}:TrainsTwice", rule)
    assert len(SEEN) == 2 * sum(len(cohort) for cohort in PLAIN.cohorts)
    assert_close_for_what_training_did(ours, expected(rule))


class Idle(LocalTrainingAlgorithm):
    """No client trains, though they could."""

    def round(self, server: ServerState, context: RoundContext) -> Round:
        yield Exchange(self.idle, server.model)

    def idle(self, client: ClientContext, model: torch.Tensor) -> Answer:
        return Answer(number=torch.ones(1))


class TrainsUnasked(LocalTrainingAlgorithm):
    """Clients train from a model that they were not sent."""

    def round(self, server: ServerState, context: RoundContext) -> Round:
        answers = yield Exchange(self.own)
        server.apply_update(answers.mean("delta"))

    def own(self, client: ClientContext) -> ClientUpdate[Answer]:
        start = torch.zeros(len(client.initial_buffers) + client.num_params)
        return Answer(delta=0.0 * (yield LocalTraining(start)))


def test_trained_models_are_asked_for_where_there_are_none() -> None:
    with pytest.raises(RayflError, match="eval_model = 'all' needs trained models, but no client trained"):
        run_on_hosts(prepared(f"{__name__}:Idle", PLAIN, {"eval_model": "all"})[0], 1)
    with pytest.raises(ClientError, match="eval_model = 'all' needs the model that clients train from; make it the"):
        run_on_hosts(prepared(f"{__name__}:TrainsUnasked", PLAIN, {"eval_model": "all"})[0], 1)
    run_on_hosts(prepared(f"{__name__}:TrainsUnasked", PLAIN)[0], 1)
