"""A host: a long-lived worker with one resident model, which runs the updates of its clients."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from rayfl.algorithms.exchange import Exchange, Part
from rayfl.data.held_out import Pool, pool_number
from rayfl.data.tensors import to_tensor
from rayfl.engine.answers import AnswersOfHost
from rayfl.engine.assignment import home
from rayfl.engine.client_updates import ExchangeUpdates
from rayfl.engine.device import choose_device, platform_facts, processor_name, use_threads
from rayfl.engine.events import Evaluated
from rayfl.engine.exact_sum import SumMemory
from rayfl.engine.host_evaluation import HostEvaluation
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.slices import Slice
from rayfl.engine.reduction import HostAnswers, merge_hosts
from rayfl.engine.resident import Resident, batch_sources, source_key
from rayfl.engine.scoring import Score
from rayfl.engine.state.client_states import ClientStates
from rayfl.engine.state.segments import StoredStates, WrittenStates
from rayfl.engine.state.state_store import SnapshotWriter, StateStore
from rayfl.engine.totals import ReportBuilder, UpdateReport
from rayfl.errors import RayflError
from rayfl.local.client_state import Values, as_arrays, on_device
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate
from rayfl.models.tensors import SentModel, all_finite, constants_of, joined, split
from rayfl.privacy.clients.mechanism import hidden_model


class Host:
    """Holds the node's copy of the data, the states of its clients, and one resident model.

    Args:
        index: The host's number, for errors.
        run: The run's plan.
        begins: Called with the clients that are about to train at once; an exception that it raises ends the run.
        memory: Where sums are; by default, each in new memory.
    """

    def __init__(
        self,
        index: int,
        run: RunPlan,
        begins: Callable[[Sequence[int]], None] = lambda clients: None,
        memory: SumMemory | None = None,
    ) -> None:
        scenario, workloads = run.scenario, run.workloads
        use_threads(scenario.numerics.threads)
        self._index, self._scenario, self._begins = index, scenario, begins
        self._device = choose_device(scenario.resources, scenario.numerics)
        distinct = {id(workload): workload for workload in workloads}
        self._sources = batch_sources(scenario, list(distinct.values()), self._device)
        held = {
            key: Resident(scenario, workload, self._device, self._sources[source_key(workload)])
            for key, workload in distinct.items()
        }
        self._residents = [held[id(workload)] for workload in workloads]
        self._plans = run.own_phases()
        self._sizes = [
            resident.message_sizes(plan) for resident, plan in zip(self._residents, self._plans, strict=True)
        ]
        self._states = ClientStates(scenario.resources.client_state_bytes)
        self._memory = memory
        self._open_answers: dict[tuple[int, int], AnswersOfHost] = {}
        self._writer: SnapshotWriter[WrittenStates] = SnapshotWriter()
        self._evaluation = HostEvaluation(index, scenario, self._plans, self._residents, self._states, self._device)

    def describe(self) -> dict[str, str]:
        """Returns the host's number, node, device and its bytes, and what can change the last bits of results."""
        where = {
            "host": str(self._index),
            "node": platform.node(),
            "device": str(self._device),
            "processor": processor_name(self._device),
        }
        if self._device.type == "cuda":
            where["gpu_memory"] = str(torch.cuda.get_device_properties(self._device).total_memory)
        return where | platform_facts(self._device)

    @property
    def batches_made(self) -> int:
        """Number of batches made so far, for training and evaluation; other threads may ask for it."""
        return sum(source.made for source in self._sources.values())

    def answer(
        self,
        round_index: RoundIndex,
        groups: Sequence[Sequence[int]],
        exchange: Exchange,
        committed: Mapping[int, int] | None = None,
        before: Sequence[Sequence[int]] = (),
        carried: HostAnswers | None = None,
        *reported: UpdateReport,
    ) -> tuple[HostAnswers, UpdateReport]:
        """Runs one exchange of a parallel round for some clients, and returns the sum of all answers that are here.

        Args:
            round_index: Position of the round within the scenario.
            groups: This host's part of the cohort, or the rest of it, in groups of clients that train at once.
            exchange: What the server sends.
            committed: By client, the last committed round that left it a state; clients without state are omitted.
            before: The groups that `update` has run here for this exchange since the last call. They run again if
                their answers are lost, since this process has started anew.
            carried: The sum that the last call returned.
            *reported: Reports of `update` that must precede this call.

        Returns:
            The reduced answers of all these clients, and a report on the updates of `groups`.

        Raises:
            ClientError: The first client update that failed.
        """
        key = round_index.round, exchange.number
        answers = self._open_answers.pop(key, None)
        earlier = {client for group in before for client in group}
        if answers is None or not answers.clients <= earlier:
            answers = self._answers(round_index, exchange)
        lost = [group for group in before if not answers.clients.issuperset(group)]
        if lost:
            self._run(answers, round_index, exchange, lost, committed)  # `update` has reported on them
        report = self._run(answers, round_index, exchange, groups, committed)
        result = answers.result()
        return (result if carried is None else self.merge(carried, result)), report

    def update(
        self,
        round_index: RoundIndex,
        groups: Sequence[Sequence[int]],
        exchange: Exchange,
        committed: Mapping[int, int] | None = None,
    ) -> UpdateReport:
        """Runs one exchange for some clients, whose answers stay here until `answer` asks for them.

        Args:
            round_index: As for `answer`.
            groups: A unit: some groups of clients that train at once.
            exchange: As for `answer`.
            committed: As for `answer`.

        Returns:
            A report on their updates.

        Raises:
            ClientError: The first client update that failed.
        """
        key = round_index.round, exchange.number
        answers = self._open_answers.get(key)
        if answers is None or answers.clients.intersection(*groups[:1]):  # repeated, though nothing was lost
            answers = self._answers(round_index, exchange)
            past = [number for number in self._open_answers if number[0] < round_index.round - 1]
            for number in past:  # of rounds that a stop has discarded
                del self._open_answers[number]
            self._open_answers[key] = answers
        return self._run(answers, round_index, exchange, groups, committed)

    def _run(
        self,
        answers: AnswersOfHost,
        round_index: RoundIndex,
        exchange: Exchange,
        groups: Sequence[Sequence[int]],
        committed: Mapping[int, int] | None,
    ) -> UpdateReport:
        began = time.perf_counter()
        self._residents[round_index.phase].hold(exchange.constants)
        updates = self._updates(round_index, exchange.number, answers.first_model, committed)
        discrete = on_device(exchange.discrete, self._device)
        for group in groups:
            self._begins(group)
            updates.run(group, answers.update, discrete)
        return replace(answers.report(), seconds=time.perf_counter() - began)

    def merge(self, *parts: HostAnswers) -> HostAnswers:
        """Merges the answers of several hosts to one exchange; see `merge_hosts`."""
        return merge_hosts(parts, self._scenario.numerics.fraction_bits)

    def answer_for_server(self, round_index: RoundIndex, exchange: Exchange) -> tuple[HostAnswers, UpdateReport]:
        """Runs an exchange that the cohort does not answer, as the update of one more client without traffic.

        Args:
            round_index: Position of the round within the scenario.
            exchange: What the server asks.

        Returns:
            The answer, and a report that covers only the privacy spent on the server's samples; an exchange for a host
            spends none.

        Raises:
            ClientError: The update failed.
        """
        answers, resident = self._answers(round_index, exchange), self._residents[round_index.phase]
        resident.hold(exchange.constants)
        store = resident.workload.store
        pool: Pool = "server" if exchange.at == "server" else "nobody"
        discrete = on_device(exchange.discrete, self._device)
        updates = self._updates(round_index, exchange.number)
        updates.run([pool_number(pool, store.num_clients)], answers.update, discrete)
        return answers.result(), answers.report()

    def relay(
        self,
        round_index: RoundIndex,
        clients: Sequence[int],
        model: SentModel,
        committed: Mapping[int, int] | None = None,
    ) -> tuple[SentModel, UpdateReport]:
        """Runs a segment of a relay: each client trains from what the previous one produced.

        Args:
            round_index: Position of the round within the scenario.
            clients: The segment, in order.
            model: The model that the first client starts from.
            committed: As for `answer`.

        Returns:
            The last client's model, and a report on the updates.

        Raises:
            ClientError: The first client update that failed.
        """
        plan, report = self._plans[round_index.phase], ReportBuilder()
        algorithm = plan.algorithm
        messages: tuple[Part, ...] = () if plan.phase.pool else ("model",)  # training on pooled samples sends nothing
        traffic = self._sizes[round_index.phase].traffic(messages, messages)
        hiding = plan.hiding
        received, discrete = split(model)
        self._residents[round_index.phase].hold(constants_of(model))
        vector = to_tensor(received, slice(None), self._device)
        values: Values = on_device(discrete, self._device)

        def update(client: ClientContext) -> ClientUpdate[torch.Tensor]:
            nonlocal values
            client.sent = (vector,)
            trained = yield from algorithm.relay(client, vector)
            if trained.shape != vector.shape or not all_finite(trained):
                raise RayflError("its update must return a model: a vector of the same length, with finite values only")
            if not trained.is_floating_point():
                raise RayflError(f"its update returned a model of dtype {trained.dtype}; return floating point numbers")
            report.add(client, traffic)
            values = client.discrete.values
            return hidden_model(hiding, vector, trained, client.streams) if hiding else trained

        updates = self._updates(round_index, committed=committed)
        for client in clients:
            self._begins([client])
            (vector,) = updates.run([client], update, values)
        return joined(vector.cpu().numpy(), as_arrays(values), constants_of(model)), report.result()

    def commit(self, round_index: RoundIndex, clients: Sequence[int]) -> None:
        """Keeps the states that these clients' updates left, once the round is over."""
        self._states.commit(round_index, clients, self._plans[round_index.phase].client_state)

    def snapshot(self, round_index: RoundIndex, store: StateStore) -> None:
        """Starts writing the states of this host's clients after a committed round to a store."""
        self._writer.begin(round_index.round, self._states.snapshot(round_index.phase, store))

    def written(self, round_index: RoundIndex, wait: bool) -> WrittenStates | None:
        """Returns what a snapshot has of this host; None while it is being written.

        Args:
            round_index: The snapshot's round.
            wait: Whether to wait until they are written.

        Raises:
            RayflError: The states could not be written.
        """
        return self._writer.written(round_index.round, wait)

    def restore(
        self, round_index: RoundIndex, parts: Sequence[StoredStates], number: int, hosts: int, store: StateStore
    ) -> None:
        """Continues after a committed round with the states of this host's clients, read from a store.

        Args:
            round_index: The round.
            parts: All parts of a snapshot.
            number: The host's number among those that divide the clients from now on.
            hosts: Their number.
            store: Where the states are.
        """
        self._states.restore(parts, lambda clients: home(clients, hosts) == number, round_index.phase, store)

    def evaluate(
        self,
        round_index: RoundIndex,
        model: SentModel,
        slices: Sequence[Slice],
        committed: Mapping[int, int] | None = None,
    ) -> list[Score]:
        """Scores a model on slices of held-out samples.

        Args:
            round_index: The round that the model is from.
            model: The model.
            slices: The slices.
            committed: As for `answer`.

        Returns:
            One score per slice.

        Raises:
            ClientError: Personalisation of a client failed.
        """
        return self._evaluation.scores(round_index, model, slices, committed)

    def summarize(self, round_index: RoundIndex, *scores: Sequence[Score]) -> Evaluated:
        """Combines the hosts' scores of a round's model.

        Args:
            round_index: The round that the model is from.
            scores: The results of `evaluate`, one per host.

        Raises:
            RayflError: A metric raised, or returned no number.
        """
        resident, phase = self._residents[round_index.phase], round_index.config(self._scenario)
        return resident.scorer.summarize(round_index, phase.name, [score for part in scores for score in part])

    def _answers(self, round_index: RoundIndex, exchange: Exchange) -> AnswersOfHost:
        phase = round_index.phase
        plan, model, sizes = self._plans[phase], self._residents[phase].model, self._sizes[phase]
        bits = self._scenario.numerics.fraction_bits
        return AnswersOfHost(plan, round_index, exchange, model, sizes, bits, self._memory)

    def _updates(
        self,
        round_index: RoundIndex,
        exchange: int = 0,
        first_model: torch.Tensor | None = None,
        committed: Mapping[int, int] | None = None,
    ) -> ExchangeUpdates:
        """Returns the runner of an exchange's client updates."""
        resident, sizes = self._residents[round_index.phase], self._sizes[round_index.phase]
        return ExchangeUpdates(
            self._scenario.seed, self._plans[round_index.phase], round_index, exchange,
            round_index.lr(self._scenario, self._plans[round_index.phase].local(exchange)),
            resident, self._states, self._index, sizes.num_params, first_model, committed,
        )  # fmt: skip
