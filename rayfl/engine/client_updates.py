"""Runs clients' updates in isolation on a host: opens their contexts, passes their requests to executors, keeps states.

Their exceptions become errors that say where they occurred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from rayfl.algorithms.exchange import Asked
from rayfl.data.held_out import pool_number
from rayfl.engine.backend import client_names
from rayfl.engine.device import TorchGenerators, device_limits_explained
from rayfl.engine.executors.executor import Executor, Requested, not_accepted, shared_out
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.sample_accesses import PlannedUpdates
from rayfl.engine.state.client_states import ClientStates
from rayfl.errors import ClientError, DivergenceError, RayflError, ResourceError
from rayfl.interruption import is_of_user_code
from rayfl.local.client_state import ClientState, Values
from rayfl.local.context import ClientContext, ClientStreams, UpdatePlan
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.local.spending import Spending
from rayfl.privacy.samples.calibration import with_noise
from rayfl.wording import their_traceback

if TYPE_CHECKING:
    from rayfl.engine.resident import Resident


@dataclass(frozen=True)
class UpdateErrors:
    """Adds worker, phase and round to the errors of client updates.

    Attributes:
        host: Number of the host that they run on.
        phase: The phase's name, or another purpose of training, such as "personalisation".
        round: The round within the scenario.
        who: Name in errors of a pool of samples that trains in place of a client.
    """

    host: int
    phase: str
    round: int
    who: str = ""

    @contextmanager
    def of_client(self, client: int) -> Iterator[None]:
        """Converts exceptions raised within into a ClientError.

        Args:
            client: The client whose update runs.

        Raises:
            ClientError: In place of the original exception.
            ResourceError: The device ran out of memory, which is not the client's fault.
        """
        try:
            with device_limits_explained():
                yield
        except (ResourceError, ClientError):
            raise
        except BaseException as error:  # user code may raise anything
            if not is_of_user_code(error):
                raise
            if isinstance(error, RayflError):
                detail, diverged = str(error), isinstance(error, DivergenceError)
            else:
                detail, diverged = "its code raised\n" + their_traceback(error), False
            raise ClientError(client, self.host, self.phase, self.round, detail, diverged, self.who) from None

    @contextmanager
    def of_group(self, clients: Sequence[int]) -> Iterator[None]:
        """Converts exceptions raised within into an error about clients that train at once.

        Args:
            clients: Their numbers, two or more.

        Raises:
            ClientError: In place of the original exception; names the clients and the key.
            ResourceError: The device ran out of memory.
        """
        try:
            with device_limits_explained():
                yield
        except ResourceError as error:
            raise ResourceError(
                f"{client_names(clients)} trained at once on worker {self.host}: {error}; or lower "
                "numerics.clients_at_once"
            ) from None
        except BaseException as error:
            if not is_of_user_code(error):
                raise
            why = str(error) if isinstance(error, RayflError) else "training raised\n" + their_traceback(error)
            detail = f"they cannot train at once; set numerics.clients_at_once=1 to train one by one: {why}"
            where = self.host, self.phase, self.round
            raise ClientError(clients[0], *where, detail, who=client_names(clients)) from None


T = TypeVar("T")


class ClientUpdates:
    """Runs client updates, those of a group side by side.

    Args:
        chain: Executors, in the order in which they are tried.
        generators: PyTorch's generators by client; shared with the executors.
    """

    def __init__(self, chain: Sequence[Executor], generators: TorchGenerators) -> None:
        self._chain, self._generators = chain, generators

    def run(
        self,
        group: Sequence[ClientContext],
        update: Callable[[ClientContext], ClientUpdate[T]],
        errors: UpdateErrors,
    ) -> list[T]:
        """Runs the updates of a group of clients until all of them have ended.

        Args:
            group: The clients, in the order in which the scenario groups them.
            update: Begins a client's update.
            errors: Converts exceptions.

        Returns:
            The results of the updates, in the order of the group.

        Raises:
            ClientError: An update or one of its requests failed. If several fail at once, the error is about the first
                of them in the group.
        """
        begun = [_Open(client, update(client)) for client in group]
        waiting = begun
        try:
            while waiting:
                for one in waiting:
                    self._generators.enter(one.client)
                    one.advance()
                requests = [one.requested for one in waiting if one.requested]
                results: dict[int, Any] = {}
                for executor, places in shared_out(self._chain, requests):
                    clients = [requests[place].client.id for place in places]
                    with errors.of_group(clients) if len(places) > 1 else nullcontext():
                        done = executor.run([requests[place] for place in places])
                    results.update(zip(places, done, strict=True))
                asking = [one for one in waiting if one.requested]
                for place, one in enumerate(asking):
                    one.result = results[place] if place in results else not_accepted(requests[place])
                for one in waiting:
                    if isinstance(one.result, BaseException):
                        with errors.of_client(one.client.id):
                            raise one.result
                waiting = asking
            return [one.answer for one in begun]
        finally:
            self._generators.forget()
            for client in group:
                client.close()


class _Open(Generic[T]):
    """A client update under way.

    Attributes:
        client: The client.
        requested: The request that it waits for; None once it has ended.
        result: The request's result, or the exception raised by the request or the update.
        answer: The update's return value.
    """

    answer: T

    def __init__(self, client: ClientContext, update: ClientUpdate[T]) -> None:
        self.client, self._update = client, update
        self.requested: Requested | None = None
        self.result: Any = None
        self._numbers: Counter[str] = Counter()

    def advance(self) -> None:
        """Sends the result to the update, which runs to its next request or its end."""
        result, self.requested, self.result = self.result, None, None
        try:
            request = self._update.send(result)
        except StopIteration as end:
            self.answer = end.value
        except BaseException as error:  # a user's algorithm may raise anything
            if not is_of_user_code(error):
                raise
            self.result = error
        else:
            kind = "training" if isinstance(request, LocalTraining) else "query"
            self.requested = Requested(self.client.asked_for(request), request, self._numbers[kind])
            self._numbers[kind] += 1


_NO_CLIENT: dict[Asked, str] = {
    "cohort": "central training",
    "server": "the server's samples",
    "host": "the server's work on a worker process",
}
"""Names in errors of updates that are not a client's, by `Exchange.at`."""


class ExchangeUpdates:
    """Runs client updates in isolation, for one exchange of a round or for hops of a relay.

    Args:
        seed: The scenario's seed.
        plan: The phase.
        round_index: The round.
        exchange: Number of the exchange in its round, from 0.
        lr: The learning rate of the exchange's local training in this round.
        resident: The phase's workload on this host.
        states: The states of the host's clients.
        host: The host's number, for errors.
        num_values: Number of values that the phase trains.
        first_model: The phase's first model on the device, if the algorithm asked for it.
        committed: By client, the last committed round that left it a state; clients without state are omitted.
    """

    def __init__(
        self,
        seed: int,
        plan: PhasePlan,
        round_index: RoundIndex,
        exchange: int,
        lr: float,
        resident: Resident,
        states: ClientStates,
        host: int,
        num_values: int,
        first_model: torch.Tensor | None = None,
        committed: Mapping[int, int] | None = None,
    ) -> None:
        asked = plan.asked[exchange]
        self._plan, self._round_index, self._exchange = plan, round_index, exchange
        self._seed, self._resident, self._states = seed, resident, states
        self._updates = resident.updates(plan.local(exchange))
        self._declared = plan.client_state if asked == "cohort" else {}
        self._committed = (committed or {}) if plan.keeps_client_state else None
        self._update = UpdatePlan(
            plan.local(exchange),
            lr,
            plan.train,
            num_values,
            first_model,
            frozenset(plan.settings.report),
            plan.keeps_momentum,
        )
        self._planned = PlannedUpdates(plan) if self._update.local.dp else None
        self._errors = UpdateErrors(host, plan.phase.name, round_index.round)
        self._errors_of_pool = UpdateErrors(host, plan.phase.name, round_index.round, _NO_CLIENT[asked])

    def run(
        self, group: Sequence[int], update: Callable[[ClientContext], ClientUpdate[T]], discrete: Values
    ) -> list[T]:
        """Runs the updates of clients that may train at once, and stages the states that they leave.

        Args:
            group: The clients' numbers, or only the number of a pool of samples.
            update: Begins a client's update.
            discrete: The integer and boolean buffers that they begin with.

        Returns:
            The updates' results.

        Raises:
            ClientError: An update failed, or all of them together.
        """
        pool = group[0] >= self._resident.workload.store.num_clients
        errors, clients = self._errors_of_pool if pool else self._errors, []
        for client in group:
            with errors.of_client(client):
                clients.append(self._context(client, discrete))
        try:
            results = self._updates.run(clients, update, errors)
        except ClientError as error:
            raise self._explained(error) from None
        for opened in clients if self._declared else ():
            with errors.of_client(opened.id):
                self._states.stage(opened.id, self._round_index.round, opened.state)
        return results

    def _explained(self, error: ClientError) -> ClientError:
        """Blames the data rather than the learning rate if a client's samples are not finite and need not be hidden."""
        hidden = self._plan.hiding is not None or self._update.local.dp is not None
        why = self._resident.not_finite(error.client) if error.diverged and not hidden else ""
        return ClientError(error.client, error.host, error.phase, error.round, why, who=error.who) if why else error

    def _context(self, client: int, discrete: Values) -> ClientContext:
        plan, resident, state = self._plan, self._resident, {}
        if self._declared:
            device = resident.model.vector.device
            state = self._states.open(client, self._round_index, self._exchange, self._committed, device)
        return resident.context(
            client,
            self._update,
            ClientStreams(self._seed, plan.number, self._round_index.round, self._exchange, client),
            ClientState(state, frozenset(self._declared)),
            plan.noise_multiplier(client) if self._update.local.dp else None,
            self._planned_spending(client),
            discrete,
            plan.hidden_by,
        )

    def _planned_spending(self, client: int) -> Spending | None:
        """What a client's requests may spend in this exchange; nothing limits requests of the server's samples."""
        noise, pool = self._plan.noise_multiplier(client), pool_number("clients", self._plan.num_clients)
        if self._planned is None or noise is None or client > pool:
            return None
        return with_noise(self._planned.in_round(client, self._round_index, self._seed, self._exchange), noise)
