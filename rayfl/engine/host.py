"""A host: a long-lived worker with one resident model, which runs the updates of its clients."""

from __future__ import annotations

import platform
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.config.phase import Local
from rayfl.config.scenario import Scenario
from rayfl.data.batches import BatchSource
from rayfl.data.device_copy import to_tensor
from rayfl.data.store import ShardStore
from rayfl.engine.client_states import ClientStates, Snapshot
from rayfl.engine.device import choose_device, device_limits_explained
from rayfl.engine.evaluation import Score, Slice
from rayfl.engine.executors.executor import Executor
from rayfl.engine.executors.one_by_one import OneByOne
from rayfl.engine.initial_model import build_network
from rayfl.engine.message_sizes import MessageSizes
from rayfl.engine.outgoing_answer import apply_transforms, check_lengths
from rayfl.engine.phase_plan import PhasePlan, commits_before, plan_phases
from rayfl.engine.platform_facts import platform_facts, processor_name
from rayfl.engine.reduction import HostAnswers, Reduction
from rayfl.engine.round_index import RoundIndex
from rayfl.engine.threads import use_threads
from rayfl.engine.update_report import ReportBuilder, UpdateReport
from rayfl.errors import ClientError, DivergenceError, RayflError, ResourceError
from rayfl.local.context import ClientContext, ClientState, ClientStreams
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.local.unfreezing import never_trained
from rayfl.models.flat import FlatModel

T = TypeVar("T")


class Host:
    """Holds the node's copy of the data, the states of its clients, and one resident model.

    Args:
        index: The host's number, which errors name.
        scenario: What runs.
        store: The data.
    """

    def __init__(self, index: int, scenario: Scenario, store: ShardStore) -> None:
        use_threads(scenario.numerics.threads)
        self._index, self._scenario, self._store = index, scenario, store
        self._device = choose_device(scenario.resources, scenario.numerics)
        self._model = FlatModel(build_network(scenario, store), self._device)
        self._initial_buffers = self._model.buffers.clone()
        self._source = BatchSource(store, self._device, scenario.resources.device_cache_bytes)
        self._plans = plan_phases(scenario)
        self._sizes = [self._sizes_of(plan) for plan in self._plans]
        self._executor: Executor = OneByOne(self._model, self._source, self._device)
        self._states = ClientStates()

    def describe(self) -> dict[str, str]:
        """Returns the host's number, node and device, and what can change its results' last bits."""
        where = {
            "host": str(self._index),
            "node": platform.node(),
            "device": str(self._device),
            "processor": processor_name(self._device),
        }
        return where | platform_facts(self._device)

    def answer(
        self, round_index: RoundIndex, clients: Sequence[int], exchange: Exchange
    ) -> tuple[HostAnswers, UpdateReport]:
        """Runs one exchange of a parallel round for some clients.

        Args:
            round_index: Position of the round within the scenario.
            clients: This host's part of the cohort.
            exchange: What the server sends.

        Returns:
            The clients' answers, reduced, and a report on their updates.

        Raises:
            ClientError: The first client update that failed.
        """
        plan = self._plans[round_index.phase]
        send = [to_tensor(vector, slice(None), self._device) for vector in exchange.send]
        first_model = exchange.first_model
        shared = None if first_model is None else to_tensor(first_model, slice(None), self._device)
        reduction, report = Reduction(self._scenario.numerics.fraction_bits), ReportBuilder()

        def update(client: ClientContext) -> ClientUpdate[Answer]:
            begun = exchange.update(client, *send)
            answer = begun if isinstance(begun, Answer) else (yield from begun)
            if any(vector._version for vector in (*send, *([] if shared is None else [shared]))):
                raise RayflError("its update changed a vector that was sent to all clients; work on a copy")
            if not isinstance(answer, Answer):
                raise RayflError(f"its client update must return an Answer, not a {type(answer).__name__}")
            check_lengths(answer, plan.algorithm.sent_vectors, self._model)
            if client.trained is not None:
                if not send:
                    raise RayflError(
                        f"eval_model = '{plan.evaluated.rule}' needs the model that clients train from; send it first"
                    )
                answer.diagnostics |= plan.evaluated.diagnose(client, answer, send[0], client.trained)
            saved_values, saved_bits = apply_transforms(plan, client, answer)
            reduction.add(answer)
            extra = () if shared is None else ("model",)
            traffic = self._sizes[round_index.phase].traffic(
                (*exchange.down, *extra), exchange.up, saved_values, saved_bits
            )
            report.add(client, traffic)
            return answer

        for client in clients:
            self._update(round_index, client, update, exchange.number, shared)
        return reduction.result(), report.result()

    def relay(
        self, round_index: RoundIndex, clients: Sequence[int], model: np.ndarray
    ) -> tuple[np.ndarray, UpdateReport]:
        """Runs a segment of a relay: each client trains from what the previous one produced.

        Args:
            round_index: Position of the round within the scenario.
            clients: The segment, in order.
            model: float32 [length of the model], what the first client starts from.

        Returns:
            The last client's model vector, and a report on the updates.

        Raises:
            ClientError: The first client update that failed.
        """
        algorithm, report = self._plans[round_index.phase].algorithm, ReportBuilder()
        traffic = self._sizes[round_index.phase].traffic(("model",), ("model",))

        def update(client: ClientContext) -> ClientUpdate[torch.Tensor]:
            left = yield from algorithm.relay(client, vector)
            if left.shape != vector.shape or not bool(torch.isfinite(left).all()):
                raise RayflError("its update left no model: another length, or values that are not finite")
            report.add(client, traffic)
            return left

        vector = to_tensor(model, slice(None), self._device)
        for client in clients:
            vector = self._update(round_index, client, update)
        return vector.cpu().numpy(), report.result()

    def commit(self, round_index: RoundIndex, clients: Sequence[int]) -> None:
        """Keeps the states that these clients' updates left, now that the round is over."""
        self._states.commit(clients, self._plans[round_index.phase].client_state)

    def snapshot(self) -> Snapshot:
        """The committed states of this host's clients."""
        return self._states.snapshot()

    def restore(self, round_index: RoundIndex, states: Snapshot) -> None:
        """Continues after a committed round with the given states of this host's clients."""
        number = RoundIndex(round_index.phase, round_index.round + 1, round_index.round_in_phase + 1)
        commits = commits_before(self._plans, number.phase, number.round_in_phase)
        self._states.restore(states, round_index.phase, commits)

    def evaluate(self, round_index: RoundIndex, model: np.ndarray, slices: Sequence[Slice]) -> list[Score]:
        """Scores a model vector on slices of the test samples.

        Args:
            round_index: The round that the model is from.
            model: float32 [length of the model].
            slices: What to score.

        Returns:
            One score per slice.

        Raises:
            ClientError: Personalisation of a client failed.
        """
        vector = to_tensor(model, slice(None), self._device)
        try:
            with device_limits_explained():
                self._model.load(vector)
                scores = [self._score(part) for part in slices if not part.personalized]
        except RayflError:
            raise
        except Exception:  # a user's network may raise anything
            raise RayflError(f"the evaluation on host {self._index} raised\n{traceback.format_exc()}") from None
        return scores + [self._personalized(round_index, vector, part) for part in slices if part.personalized]

    def _personalized(self, round_index: RoundIndex, vector: torch.Tensor, part: Slice) -> Score:
        """Scores after local training on the client's own samples, with random streams that no phase uses."""
        local = self._scenario.evaluation.personalize
        assert local is not None
        streams = ClientStreams(self._scenario.seed, len(self._scenario.phases), round_index.round, 0, part.client)

        def update(_: ClientContext) -> ClientUpdate[torch.Tensor]:
            trained: torch.Tensor = yield LocalTraining(vector)
            return trained

        with self._errors_of(part.client, "personalisation", round_index.round):
            client = self._client(part.client, local, local.lr, streams, ClientState({}, frozenset()))
            self._model.load(self._run(client, update))
            return self._score(part)

    def _score(self, part: Slice) -> Score:
        self._model.module.eval()
        loss, correct, size = 0.0, 0, self._scenario.evaluation.batch_size
        for start in range(part.start, part.stop, size):
            x, y = self._source.test_batch(slice(start, min(start + size, part.stop)))
            with torch.inference_mode():
                logits = self._model.module(x)
                loss += float(F.cross_entropy(logits, y, reduction="sum"))
                correct += int((logits.argmax(dim=1) == y).sum())
        return Score(part, loss, correct)

    def _update(
        self,
        round_index: RoundIndex,
        client_id: int,
        update: Callable[[ClientContext], ClientUpdate[T]],
        exchange: int = 0,
        first_model: torch.Tensor | None = None,
    ) -> T:
        """Runs one client update in isolation; whatever goes wrong in it becomes a ClientError."""
        plan, phase, seed = self._plans[round_index.phase], round_index.phase, self._scenario.seed
        with self._errors_of(client_id, plan.phase.name, round_index.round):
            declared, kept = plan.client_state, {}
            if declared:
                commits = commits_before(self._plans, phase, round_index.round_in_phase)
                kept = self._states.open(client_id, phase, commits, exchange, self._device)
            state = ClientState(kept, frozenset(declared))
            streams = ClientStreams(seed, phase, round_index.round, exchange, client_id)
            lr = round_index.lr(self._scenario)
            client = self._client(client_id, plan.phase.local, lr, streams, state, first_model, plan)
            result = self._run(client, update)
            if declared:
                self._states.stage(client_id, state)
            return result

    def _client(
        self,
        client_id: int,
        local: Local,
        lr: float,
        streams: ClientStreams,
        state: ClientState,
        first_model: torch.Tensor | None = None,
        plan: PhasePlan | None = None,
    ) -> ClientContext:
        num_samples = self._source.num_samples(client_id)
        return ClientContext(
            id=client_id,
            num_samples=num_samples,
            relative_size=num_samples / self._source.mean_samples,
            local=local,
            lr=lr,
            streams=streams,
            state=state,
            model=self._model,
            random_model=self._random_model,
            initial_buffers=self._initial_buffers,
            first_model=first_model,
            num_values=self._sizes[streams.phase].num_params if plan else self._model.num_params,
            keeps_trained=plan is not None and plan.evaluated.reads_trained,
        )

    def _run(self, client: ClientContext, update: Callable[[ClientContext], ClientUpdate[T]]) -> T:
        ((_, result),) = self._executor.run([client], update)
        return result

    def _random_model(self, seed: int) -> torch.Tensor:
        network = build_network(self._scenario, self._store, seed)
        return FlatModel(network, self._device).vector

    def _sizes_of(self, plan: PhasePlan) -> MessageSizes:
        fixed = never_trained(plan.phase.local, plan.algorithm.fixed_last, self._model.module)
        return MessageSizes(self._model, fixed, plan.algorithm.buffers_are_sent())

    @contextmanager
    def _errors_of(self, client: int, phase: str, round: int) -> Iterator[None]:
        """Whatever is raised within becomes a ClientError."""
        try:
            with device_limits_explained():
                yield
        except ResourceError:  # not the client's fault
            raise
        except (Exception, SystemExit) as error:  # a user's code may raise anything, and the run must say where
            if isinstance(error, RayflError):
                detail, diverged = str(error), isinstance(error, DivergenceError)
            else:
                detail, diverged = "its code raised\n" + traceback.format_exc(), False
            raise ClientError(client, self._index, phase, round, detail, diverged) from None
