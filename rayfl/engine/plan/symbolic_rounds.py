"""Runs rounds of a phase on one symbolic client, to find out what they exchange and request.

Requests are answered by vectors of the right length; nothing is trained, and no sample is read.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch

from rayfl.algorithms.exchange import Answer, Answers, Asked, Exchange
from rayfl.algorithms.limits import SampleRequest
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.algorithms.updates import Updates
from rayfl.algorithms.wrappers import Alone
from rayfl.config.local import Local
from rayfl.data.batches import BatchSource
from rayfl.data.held_out import Pool, pool_number
from rayfl.data.tensors import to_tensor
from rayfl.engine.answers import answer_of
from rayfl.engine.plan.cohort import cohort_sizes
from rayfl.engine.plan.network_outputs import generators_restored
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.trace import Trace, TracedExchange, declared_exchanges
from rayfl.engine.plan.workload import Workload
from rayfl.errors import RayflError
from rayfl.interruption import is_of_user_code
from rayfl.local import queries
from rayfl.local.client_state import ClientState
from rayfl.local.context import ClientContext, ClientFacts, ClientNetwork, ClientStreams, UpdatePlan
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.local.steps import other_length, update_steps
from rayfl.models.feature_layer import features_and_outputs, head_of
from rayfl.models.flat import FlatModel
from rayfl.models.modes import evaluation_mode
from rayfl.streams import stream

FEW_STEPS, MORE_STEPS = 2, 4
"""The local steps of a client update that is traced twice, which shows the requests that it makes at every step."""

MOST_EXCHANGES, MOST_REQUESTS = 100, 1000
"""Beyond these, a round or a client update is taken to wait for something that never happens to symbolic values."""

MOST_CLIENTS = 256
"""The largest cohort that is tried in addition to the smallest: one drawn by chance may have as many as there are."""

T = TypeVar("T")

CHANGE, LOSS = 0.01, 0.5
"""What symbolic training adds to every value, and every symbolic loss."""


class _UnknownError(RayflError):
    """A round cannot be traced."""


def with_traces(
    plans: Sequence[PhasePlan], models: Sequence[FlatModel], workloads: Sequence[Workload]
) -> list[PhasePlan]:
    """Returns phases with the traces of their rounds; arguments by phase as for `trace_phase`."""
    parts = zip(plans, models, workloads, strict=True)
    return [plan.with_facts(trace=trace_phase(plan, model, workload)) for plan, model, workload in parts]


def trace_phase(plan: PhasePlan, model: FlatModel, workload: Workload) -> Trace:
    """Runs the first, second and last round of a phase, with its smallest and its largest (or a large) cohort.

    They run on copies of the algorithm and of all states, and leave the initial `model` and global generators as they
    were.
    """
    with generators_restored(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return _Rounds(replace(plan), model, workload).trace()


class _Client(ClientContext):
    """A client that notices what is read of it, and whose frozen copies are never computed."""

    def __init__(self, plan: UpdatePlan, client: ClientFacts, network: ClientNetwork, read: set[str]) -> None:
        self._read = read
        super().__init__(plan, client, network)

    @property
    def first_model(self) -> torch.Tensor | None:
        self._read.add("first_model")
        return self._first_model

    @first_model.setter
    def first_model(self, vector: torch.Tensor | None) -> None:
        self._first_model = vector

    @property
    def local(self) -> Local:
        self._read.add("local")
        return self._local

    @local.setter
    def local(self, local: Local) -> None:
        self._local = local

    def train_for(self, request: LocalTraining) -> None:
        """Adds the losses of a training request's steps."""
        local = self._local.model_copy(update=other_length(request.epochs, request.steps))
        self.add_losses([LOSS] * update_steps(local, self.num_samples))

    @property
    def losses(self) -> tuple[float, ...]:
        self._read.add("local")
        return super().losses

    def frozen_features(self, vector: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: x


class _SameUpdates(Updates):
    """The updates of a cohort that all equal one vector, aggregated without reading all of it for every client."""

    def by_coordinate(self, reduce: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        first = np.stack([vector[:1] for vector in self.vectors]).astype(np.float64)
        return np.full(self.length, reduce(first) if self.length else 0.0)

    def squared_distances(self, point: np.ndarray) -> np.ndarray:
        return np.zeros(len(self))

    def pairwise_squared_distances(self) -> np.ndarray:
        return np.zeros((len(self), len(self)))


class _Rounds:
    """The traced rounds of a phase.

    Args:
        plan: The phase, with components of its own.
        model: Its initial model.
        workload: Its workload.
    """

    def __init__(self, plan: PhasePlan, model: FlatModel, workload: Workload) -> None:
        self._plan, self._model, self._workload = plan, model, workload
        self._scenario, self._store = plan.scenario, workload.store
        self._initial = model.vector.clone()
        self._network = ClientNetwork(model, model.buffers.clone(), lambda _: model.vector.clone())
        self._declared_exchanges = declared_exchanges(plan.algorithm)
        self._declared = {**plan.algorithm.client_state(), **plan.task.client_state()}
        self._kept: dict[str, torch.Tensor] = {}
        self._vectors: dict[str, None] = {}  # a set in order
        self._read: set[str] = set()
        self._runs: dict[tuple[int, int], list[TracedExchange]] = {}

    def trace(self) -> Trace:
        """Runs the rounds."""
        rounds, (least, most) = self._plan.phase.rounds, cohort_sizes(self._plan.phase, self._store.num_clients)
        numbers, unknown = sorted({1, min(2, rounds), rounds} - {0}) or [1], ""
        least = max(1, least)
        for size in sorted({least, max(least, min(most, MOST_CLIENTS))}):
            unknown = unknown or self._run(numbers, size)
        first = later = next(iter(self._runs.values()))
        for (number, size), exchanges in self._runs.items():
            later = exchanges if number > 1 and later is first else later
            if not unknown and exchanges != (first if number == 1 else later):
                unknown = f"round {number} of the phase with {size} clients is not like the others"
        reads = "first_model" in self._read
        return Trace(tuple(first), tuple(later), tuple(self._vectors), reads, unknown)

    def _run(self, numbers: Sequence[int], size: int) -> str:
        """Runs rounds with cohorts of a size, one after the other; returns why one cannot be traced, if so."""
        plan, of, self._kept = self._plan, self._workload.initial, {}
        declared = dict(plan.algorithm.server_state())
        clients = self._store.num_clients
        server = ServerState(of.vector, of.num_params, clients, {}, declared, of.layout, discrete=of.discrete)
        for number in numbers:
            exchanges, server = self._runs.setdefault((number, size), []), server.staged()
            index = RoundIndex(plan.number, plan.first_round + number - 1, number)
            try:
                if plan.phase.has_server or isinstance(plan.algorithm, Alone):
                    self._parallel(index, size, server, exchanges)
                else:
                    self._relay(index, exchanges)
            except BaseException as error:  # a user's algorithm may raise anything
                if not is_of_user_code(error):
                    raise
                line = str(error).partition("\n")[0]
                return line if isinstance(error, RayflError) else f"it raised {type(error).__name__}: {line}"
            server.state = {name: value for name, value in server.state.items() if declared.get(name) != "round"}
            self._kept = {name: value for name, value in self._kept.items() if self._declared.get(name) != "round"}
        return ""

    def _parallel(self, index: RoundIndex, size: int, server: ServerState, exchanges: list[TracedExchange]) -> None:
        """Runs a round of exchanges; they are added as they come."""
        plan = self._plan
        context = RoundContext(
            cohort=() if plan.phase.hides_cohort else range(size),
            round=index.round,
            round_in_phase=index.round_in_phase,
            lr=index.lr(self._scenario),
            decay_round=index.decay_round(plan.phase.local),
            stream=stream(self._scenario.seed, "symbolic round", index.phase, index.round),
            reports=frozenset(plan.settings.report),
            clip_norm=self._clip_norm,
        )
        steps = plan.algorithm.round(server, context)
        answers: Answers | None = None
        while True:
            try:
                exchange = steps.send(answers)  # type: ignore[arg-type]
            except StopIteration:
                return
            if len(exchanges) == MOST_EXCHANGES:
                raise _UnknownError(f"a round goes on after {MOST_EXCHANGES} exchanges")
            exchanges.append(TracedExchange(exchange.at, exchange.down, exchange.up, exchange.with_first_model))
            if exchange.at == "host" and len(exchanges) == self._declared_exchanges:
                return  # nothing follows work that may take long
            number = len(exchanges) - 1
            send = tuple(to_tensor(vector, slice(None), self._model.vector.device) for vector in exchange.send)

            def update(client: ClientContext, exchange: Exchange = exchange, send: Any = send) -> ClientUpdate[Answer]:
                client.clip_norm, client.sent = self._clip_norm, send
                return (yield from answer_of(exchange, client, send))

            answer, requests = self._updated(index, number, size, exchange.at, update)
            trained = exchange.at == "cohort" and (answer.trained is not None or "delta" in answer.values)
            exchanges[-1] = replace(exchanges[-1], requests=requests, trained=trained)
            if exchange.at == "cohort":
                lengths = len(self._model.params), len(self._model.vector)
                named = {**answer.values, **answer.sums}
                self._vectors |= {
                    name: None for name, vector in named.items() if name == "delta" or vector.numel() in lengths
                }
            answers = _reduced(answer, size if exchange.at == "cohort" else 1, exchange.each)

    def _relay(self, index: RoundIndex, exchanges: list[TracedExchange]) -> None:
        """Runs one hop of a relay."""
        exchanges.append(TracedExchange("cohort", ("model",), ("model",)))
        sent = self._initial.clone()

        def update(client: ClientContext) -> ClientUpdate[torch.Tensor]:
            client.sent = (sent,)
            return (yield from self._plan.algorithm.relay(client, sent))

        _, requests = self._updated(index, 0, 1, "cohort", update)
        exchanges[-1] = replace(exchanges[-1], requests=requests)

    @property
    def _clip_norm(self) -> float | None:
        return 1.0 if self._plan.phase.has_server and self._plan.settings.dp else None

    def _updated(
        self, index: RoundIndex, exchange: int, size: int, at: Asked, update: Callable[[ClientContext], ClientUpdate[T]]
    ) -> tuple[T, tuple[SampleRequest, ...]]:
        """Runs a client update; returns what it returns, and the requests that it makes of a client's samples.

        An update that reads the options of local training is run again with more local steps.
        """
        self._read.discard("local")
        client, few = self._client(index, exchange, size, at, FEW_STEPS), Counter[SampleRequest]()
        updated = self._run_update(client, update, few)
        if at != "cohort":
            return updated, ()
        requests = tuple(few.elements())
        if "local" in self._read:
            again, more = self._client(index, exchange, size, at, MORE_STEPS), Counter[SampleRequest]()
            self._run_update(again, update, more)
            requests = _requests(few, more)
        self._kept = dict(client.state)
        return updated, requests

    def _run_update(
        self, client: _Client, update: Callable[[ClientContext], ClientUpdate[T]], counts: Counter[SampleRequest]
    ) -> T:
        """Runs a client update, and adds its requests of samples to `counts`."""
        begun, result, pool = update(client), None, client.id >= self._store.num_clients
        for _ in range(MOST_REQUESTS * (self._store.num_clients if pool else 1)):
            try:
                request = begun.send(result)
            except StopIteration as end:
                updated: T = end.value
                return updated
            counts.update(_of_samples(request, client.streams.exchange))
            result = self._result(client, request)
        raise _UnknownError(f"a client update goes on after {MOST_REQUESTS} requests")

    def _client(self, index: RoundIndex, exchange: int, size: int, at: Asked, steps: int) -> _Client:
        plan, local, store = self._plan, self._plan.phase.local, self._store
        number, samples, state = 0, int(store.train_shards.sizes.max()), ClientState({}, frozenset())
        if at != "cohort" or plan.phase.pool:
            pool: Pool = plan.phase.pool or ("server" if at == "server" else "nobody")
            number = pool_number(pool, store.num_clients)
            samples = {"clients": len(store.train), "server": len(store.server or range(size)), "nobody": 0}[pool]
        if at == "cohort":
            state = ClientState(dict(self._kept), frozenset(self._declared))
        update_plan = UpdatePlan(
            local.model_copy(update=other_length(None, steps)),
            index.lr(self._scenario, local),
            plan.train,
            first_model=self._initial,
            reports=frozenset(plan.settings.report),
        )
        facts = ClientFacts(
            number,
            samples,
            1.0,
            ClientStreams(self._scenario.seed, index.phase, index.round, exchange, number),
            state,
            None if local.dp is None else 0.0,
        )
        return _Client(update_plan, facts, self._network, self._read)

    def _result(self, client: _Client, request: Any) -> Any:
        """The symbolic result of a request."""
        params, vector = len(self._model.params), self._model.vector
        loss = vector.new_full((1,), LOSS)
        match request:
            case LocalTraining():
                client.train_for(request)
                client.state.update(self._plan.task.symbolic_state(self._model.module))
                return request.start + CHANGE
            case queries.Rehearsal():
                client.state.update(self._plan.task.symbolic_state(self._model.module))
                return loss
            case queries.Loss():
                return loss
            case queries.Gradient() | queries.HessianVectorProduct():
                return vector.new_full((params,), CHANGE)
            case queries.LossAndGradient():
                return loss, vector.new_full((params,), CHANGE)
            case queries.Features() | queries.Outputs() | queries.Labels():
                number = client.num_samples if request.data is None else len(request.data)
                return self._one_sample[type(request)].new_zeros(number, *self._one_sample[type(request)].shape[1:])
        raise _UnknownError(f"its client update yielded a {type(request).__name__}, not a request of rayfl.local")

    @cached_property
    def _one_sample(self) -> dict[type, torch.Tensor]:
        """Features, outputs and label of one test sample, for their shapes."""
        x, y = BatchSource(self._store, torch.device("cpu")).test_batch(slice(0, 1))
        model = self._model
        with model.elsewhere(model.params), evaluation_mode(model.module), torch.no_grad():
            has_features = head_of(model.module) is not None
            features, outputs = features_and_outputs(model.module, x) if has_features else (y, model.module(x))
        return {queries.Features: features, queries.Outputs: outputs, queries.Labels: y}


def _of_samples(request: Any, exchange: int) -> list[SampleRequest]:
    """The request as it counts for a client's privacy and time: at most one."""
    view = getattr(request, "data", None)
    part = "" if view is None else view.part
    match request:
        case LocalTraining():
            return [SampleRequest(part=part, epochs=request.epochs, steps=request.steps, exchange=exchange)]
        case queries.Rehearsal():  # as many batches as training
            return [SampleRequest(part=part, exchange=exchange)]
        case queries.Loss() | queries.Gradient():
            return [SampleRequest("query", part, exchange=exchange)]
        case queries.LossAndGradient():
            return [SampleRequest("query", part, results=2, exchange=exchange)]
    return []


def _requests(few: Counter[SampleRequest], more: Counter[SampleRequest]) -> tuple[SampleRequest, ...]:
    """The requests of a client update, from those made with few and with more local steps."""
    requests: list[SampleRequest] = []
    for request in more | few:
        every, odd = divmod(more[request] - few[request], MORE_STEPS - FEW_STEPS)
        once = few[request] - every * FEW_STEPS
        if odd or every < 0 or once < 0 or (every and request.kind == "training"):
            raise _UnknownError("the requests of its client update depend on the number of its local steps")
        requests += [request] * once + [replace(request, every_step=True)] * every
    return tuple(requests)


def _reduced(answer: Answer, count: int, each: bool) -> Answers:
    """The answers of a cohort whose clients all answer the same."""

    def arrays(named: Mapping[str, torch.Tensor], factor: float = 1.0) -> dict[str, np.ndarray]:
        values = {name: vector.detach().numpy().reshape(-1) for name, vector in named.items()}
        return {name: np.multiply(value, factor, dtype=np.float64) for name, value in values.items()}

    totals, one_by_one = {}, {}
    if each:
        clients, weights = tuple(range(count)), np.full(count, float(answer.weight))
        for name, vector in answer.values.items():
            values = vector.detach().float().numpy().reshape(-1)
            one_by_one[name] = _SameUpdates(clients, weights, [values] * count)
    else:
        totals = arrays(answer.values, answer.weight * count)
    sums = arrays({**answer.sums, **answer.diagnostics}, count)
    return Answers(count, answer.weight * count, totals, sums, arrays(answer.maxima), one_by_one)
