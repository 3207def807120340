"""What the trial rounds of every algorithm show, compared with declarations written out by hand."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, cast

import pytest
import torch

from rayfl.algorithms import algorithms
from rayfl.algorithms.algorithm import Round
from rayfl.algorithms.exchange import Answer, Asked, Exchange, Messages
from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.limits import SampleRequest
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.config.scenario import Scenario
from rayfl.engine.plan.symbolic_rounds import trace_phase
from rayfl.engine.plan.trace import Trace, TracedRound
from rayfl.local.context import ClientContext
from rayfl.local.queries import Loss
from rayfl.local.requests import ClientUpdate
from rayfl.runs.preparation import prepare
from tests.engine.test_matrix import NO_DATA, SCENES

TRAINING, QUERY = SampleRequest(), SampleRequest("query")
BOTH = SampleRequest("query", results=2)
MODEL: Messages = [(("model",), ("model",))]
MODEL_AND_NUMBER: Messages = [(("model",), ("model", 1))]
COHORT: tuple[Asked, ...] = ("cohort",)
INITIAL = {"penalties": [{"name": "contrastive", "first": "initial"}]}


class Declared(NamedTuple):
    """Who answers, the messages to and from the cohort, the requests of its samples, the vectors, the first model."""

    asked: tuple[Asked, ...] = COHORT
    messages: Messages = MODEL
    requests: tuple[SampleRequest, ...] = (TRAINING,)
    vectors: tuple[str, ...] = ("delta",)
    first_model: bool = False


USUAL = Declared()
SCAFFOLD = Declared(messages=[(("model", "params"), ("model", "params"))], vectors=("delta", "control_delta"))
QFFL = ("cohort", "cohort"), ("direction",)
TRAIN_LATER = SampleRequest(exchange=1)
ON_SUPPORT, ON_QUERY = SampleRequest(part="support"), SampleRequest("query", "query", results=2, exchange=1)
COPREFL = Declared(
    ("cohort", "cohort"), [(("model",), ("model",)), (("model",), ("params", 1))], (ON_SUPPORT, ON_QUERY)
)
MAML = Declared(
    messages=[(("model",), ("params",))],
    requests=(SampleRequest("query", "support"), SampleRequest("query", "query", results=2)),
    vectors=("gradient",),
)
META_SGD = MAML._replace(messages=[(("model", "params"), ("params", "params"))], vectors=("gradient", "rates_gradient"))
AT_STEP = SampleRequest("query", every_step=True)
BOTH_AT_STEP = SampleRequest("query", results=2, every_step=True)
CENTROIDS = 3 * 4
"""Clusters of a client times the width of a projection."""

DECLARED: list[tuple[str, dict[str, Any], Declared]] = [
    ("fedavg", {}, USUAL),
    ("fedavg", {"weighting": "uniform", "aggregation": "median"}, USUAL),
    ("fedavg", {"weighting": "uniform", "aggregation": {"name": "krum", "byzantine": 0}}, USUAL),
    ("fedavg", {"weighting": "uniform", "aggregation": {"name": "trimmed_mean", "share": 0.4}}, USUAL),
    ("fedavg", {"aggregation": "geometric_median"}, USUAL),
    ("fedavg", {"buffers": "keep"}, USUAL),
    ("fedavg", {"buffers": "reset"}, USUAL),
    ("fedavgm", {}, USUAL),
    ("fedadagrad", {}, USUAL),
    ("fedadam", {}, USUAL),
    ("fedyogi", {}, USUAL),
    ("fedprox", {}, USUAL),
    ("scaffold", {}, SCAFFOLD),
    ("scaffold", {"option": "I"}, SCAFFOLD._replace(requests=(QUERY, TRAINING))),
    ("scaffold", {"correction": "step"}, SCAFFOLD),
    ("scaffold", {"steps": "plain", "weighting": "samples"}, SCAFFOLD),
    ("scaffold", {"aggregation": "median"}, SCAFFOLD),
    ("moon", {}, USUAL),
    ("moon", {"first": "random"}, USUAL),
    (
        "moon",
        {"first": "initial"},
        USUAL._replace(messages=[(("model", "model"), ("model",))], first_model=True),
    ),
    ("feddyn", {}, USUAL),
    ("feddyn", {"penalty": "decay", "scale_alpha": True}, USUAL),
    ("fedexp", {}, USUAL._replace(messages=MODEL_AND_NUMBER)),
    ("fedexp", {"form": "code"}, USUAL._replace(messages=MODEL_AND_NUMBER)),
    ("fedexp", {"form": "feddecorr"}, USUAL._replace(messages=MODEL_AND_NUMBER)),
    ("fedexp", {"form": "fedbug"}, USUAL._replace(messages=MODEL_AND_NUMBER)),
    ("feddecorr", {}, USUAL),
    ("fednova", {}, Declared(messages=MODEL_AND_NUMBER, vectors=("change",))),
    (
        "qfedavg",
        {},
        Declared(
            ("cohort", "cohort"),
            [(("model",), (1,)), ((1,), ("model", 1))],
            (QUERY, TRAIN_LATER),
            ("direction",),
        ),
    ),
    (
        "qfedavg",
        INITIAL,
        Declared(
            ("cohort", "cohort"),
            [(("model",), (1,)), ((1, "model"), ("model", 1))],
            (QUERY, TRAIN_LATER),
            ("direction",),
            first_model=True,
        ),
    ),
    (
        "qfedsgd",
        {},
        Declared(
            ("cohort", "cohort"),
            [(("model",), (1,)), ((1,), ("params", 1))],
            (QUERY, SampleRequest("query", exchange=1)),
            ("direction",),
        ),
    ),
    ("coprefl", {}, COPREFL),
    ("coprefl", {"gamma": 1.0, "total": "mean"}, COPREFL),
    ("coprefl", {"split": "round"}, COPREFL._replace(requests=(TRAINING, SampleRequest("query", "", 2, exchange=1)))),
    ("coprefl", {"queries": "server"}, Declared(("cohort", "server"))),
    (
        "coprefl",
        INITIAL,
        COPREFL._replace(messages=[(("model", "model"), ("model",)), (("model",), ("params", 1))], first_model=True),
    ),
    ("fedbabu", {}, USUAL),
    ("ditto", {}, USUAL._replace(requests=(TRAINING, TRAINING))),
    ("ditto", {"penalties": ["proximal"]}, USUAL._replace(requests=(TRAINING, TRAINING))),
    ("fedbn", {}, USUAL._replace(vectors=("shared",))),
    ("fedper", {}, USUAL._replace(vectors=("shared",))),
    ("fedper", {"keeps": "body"}, USUAL._replace(vectors=("shared",))),
    ("fedmeta", {}, MAML),
    ("fedmeta", {"order": "first"}, MAML),
    ("fedmeta", {"variant": "meta_sgd"}, META_SGD),
    ("fedmeta", {"variant": "meta_sgd", "split": "round"}, META_SGD._replace(requests=(QUERY, BOTH))),
    ("perfedavg", {}, USUAL._replace(requests=(AT_STEP, BOTH_AT_STEP))),
    (
        "perfedavg",
        {"variant": "hessian_free"},
        USUAL._replace(requests=(AT_STEP, AT_STEP, AT_STEP, BOTH_AT_STEP)),
    ),
    (
        "orchestra",
        {"local_clusters": 3},
        Declared(("cohort", "cohort", "host"), [(("model",), ("model",)), ((), (CENTROIDS,))]),
    ),
    (
        "orchestra",
        {"local_clusters": 3, "stateful": True},
        Declared(("cohort", "cohort", "host"), [(("model",), ("model",)), ((), (CENTROIDS,))]),
    ),
]
FIRST_ROUND: dict[str, Messages] = {"orchestra": [(("model",), ()), ((), (CENTROIDS,))]}
"""Messages of a first round that is unlike the later ones."""


def traced(algorithm: dict[str, Any], phase: dict[str, Any] | None = None) -> Trace:
    tables: dict[str, Any] = {
        "data": {"name": "tests.algorithms.scene:people", "server_share": 0.2},
        "model": {"name": "tests.algorithms.test_buffers:NormNet"},
        **SCENES.get(algorithm["name"], {}),
    }
    usual = {"name": "p", "rounds": 5, "cohort": {"explicit": [[0, 1, 2], [3, 4, 5, 6, 7]]}}
    if algorithm["name"] in ("fedmeta", "perfedavg"):  # they take no running statistics
        tables["model"] = {"name": "tests.algorithms.scene:TanhNet"}
    if algorithm["name"] == "orchestra":
        usual["cohort"] = {"explicit": [[0], [0, 1]]}
    tables["phases"] = [{**usual, **(phase or {}), "algorithm": algorithm}]
    run, model = prepare(Scenario.from_tables(tables), NO_DATA)
    before = model.vector.clone()
    trace = trace_phase(run.phases[0], model, run.workloads[0])
    assert (model.vector == before).all()
    return trace


def messages(trace: Trace, round: TracedRound) -> list[Any]:
    first = [("model",) if trace.reads_first_model and one.with_first_model else () for one in round]
    return [((*one.down, *more), one.up) for one, more in zip(round, first, strict=True) if one.at == "cohort"]


@pytest.mark.parametrize(("name", "options", "declared"), DECLARED, ids=[f"{n} {o}"[:50] for n, o, _ in DECLARED])
def test_a_trace_shows_what_the_algorithm_declares(name: str, options: dict[str, Any], declared: Declared) -> None:
    trace = traced({"name": name, **options})
    assert trace.unknown == ""
    assert tuple(one.at for one in trace.first) == tuple(one.at for one in trace.later) == declared.asked
    assert messages(trace, trace.later) == declared.messages
    assert messages(trace, trace.first) == FIRST_ROUND.get(name, declared.messages)
    for round in (trace.first, trace.later):
        requests = [request for one in round for request in one.requests]
        assert sorted(map(repr, requests)) == sorted(map(repr, declared.requests))
    sent = [vector for vector in trace.vectors if name != "coprefl" or vector == "delta"]
    assert tuple(sorted(sent)) == tuple(sorted(declared.vectors))
    assert trace.reads_first_model == declared.first_model


def test_every_algorithm_is_traced() -> None:
    assert {name for name, _, _ in DECLARED} == set(algorithms)


def test_a_relay_is_traced_by_its_hop() -> None:
    trace = traced({"name": "perfedavg"}, {"schedule": "relay", "cohort": 3})
    ((hop,),) = {trace.first, trace.later}
    assert (hop.at, set(hop.requests)) == ("cohort", {AT_STEP, BOTH_AT_STEP})


def test_local_training_alone_is_traced_with_nothing_sent() -> None:
    trace = traced({"name": "fedavg"}, {"schedule": "local", "cohort": 3})
    assert (trace.first[0].down, trace.first[0].up, trace.first[0].requests) == ((), (), (TRAINING,))


class Curious(FedAvg):
    """Asks for a loss only in rounds that two rounds do not show, or forever."""

    how: str

    def client_update(self, client: ClientContext, model: torch.Tensor) -> ClientUpdate[Answer]:
        if self.how == "many steps" and client.steps > 3:
            yield Loss(model)
        while self.how == "forever":
            yield Loss(model)
        if self.how == "wrong":
            yield cast("Any", "a request")
        if self.how == "raises":
            raise ValueError("not for symbols")
        return (yield from super().client_update(client, model))

    def round(self, server: ServerState, context: RoundContext) -> Round:
        yield from super().round(server, context)
        if self.how == "last round" and context.round_in_phase == 5:
            yield Exchange(self.client_update, server.model)
        if self.how == "large cohort" and len(context.cohort) > 3:
            yield Exchange(self.client_update, server.model)
        while self.how == "endless":
            yield Exchange(self.client_update, server.model)


class Counting(FedAvg):
    """Counts the clients of the cohorts that it is given."""

    given: ClassVar[set[int]] = set()

    def round(self, server: ServerState, context: RoundContext) -> Round:
        self.given.add(len(context.cohort))
        yield from super().round(server, context)


def test_a_cohort_of_any_number_of_clients_is_tried_with_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayfl.engine.plan.symbolic_rounds.MOST_CLIENTS", 4)
    assert not traced({"name": f"{__name__}:Counting"}, {"cohort": {"bernoulli": 0.5}}).unknown
    assert Counting.given == {1, 4}


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("many steps", "the requests of its client update depend on the number of its local steps"),
        ("forever", "a client update goes on after 1000 requests"),
        ("endless", "a round goes on after 100 exchanges"),
        ("wrong", "its client update yielded a str, not a request of rayfl.local"),
        ("raises", "it raised ValueError: not for symbols"),
        ("last round", "round 5 of the phase with 3 clients is not like the others"),
        ("large cohort", "round 1 of the phase with 5 clients is not like the others"),
    ],
)
def test_what_cannot_be_traced_is_said(how: str, why: str) -> None:
    assert traced({"name": f"{__name__}:Curious", "how": how}).unknown == why
