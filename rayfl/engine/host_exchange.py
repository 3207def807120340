"""A host's part of an exchange: runs its clients' updates in isolation, and prepares every answer to be summed.

Opens contexts, stages states and locates failures. An answer is checked, gets the diagnostics that the phase needs,
and passes through its transforms; vectors shared by all clients stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from rayfl.algorithms.exchange import Answer, Asked, Exchange
from rayfl.algorithms.transforms import Encoded
from rayfl.engine.client_updates import UpdateErrors
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.resident import Resident
from rayfl.engine.state.client_states import ClientStates
from rayfl.errors import ClientError, RayflError
from rayfl.local.client_state import ClientState, Values
from rayfl.local.context import ClientContext, ClientStreams, UpdatePlan
from rayfl.local.requests import ClientUpdate
from rayfl.models.flat import FlatModel

T = TypeVar("T")

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
        self._declared = plan.client_state if asked == "cohort" else {}
        self._committed = (committed or {}) if plan.keeps_client_state else None
        self._update = UpdatePlan(
            plan.local(exchange),
            lr,
            plan.train,
            num_values,
            first_model,
            frozenset(plan.phase.settings.report),
            plan.keeps_momentum,
        )
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
            results = self._resident.run(clients, update, errors)
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
        plan, resident, kept = self._plan, self._resident, {}
        if self._declared:
            device = resident.model.vector.device
            kept = self._states.open(client, self._round_index, self._exchange, self._committed, device)
        return resident.context(
            client,
            self._update,
            ClientStreams(self._seed, plan.number, self._round_index.round, self._exchange, client),
            ClientState(kept, frozenset(self._declared)),
            plan.noise_multiplier(client) if self._update.local.dp else None,
            discrete,
            plan.hidden_by,
        )


R = TypeVar("R")


def answer_of(
    exchange: Exchange, client: ClientContext, send: Sequence[torch.Tensor], shared: torch.Tensor | None = None
) -> ClientUpdate[Answer]:
    """Runs an exchange's update of one client, and checks that it does not change what all clients share.

    Raises:
        RayflError: It changed a shared vector, or returned something else than an `Answer`.
    """
    begun = exchange.update(client, *send)
    received = send if shared is None else (*send, shared)
    answer = begun if isinstance(begun, Answer) else (yield from _checked_at_requests(received, begun))
    _check_unchanged(received)
    if not isinstance(answer, Answer):
        raise RayflError(f"its client update must return an Answer, not a {type(answer).__name__}")
    return answer


def _checked_at_requests(received: Sequence[torch.Tensor], update: ClientUpdate[R]) -> ClientUpdate[R]:
    """Also checks before every request; checked later, another client of the group could be blamed."""
    result: Any = None
    while True:
        try:
            request = update.send(result)
        except StopIteration as end:
            answer: R = end.value
            return answer
        _check_unchanged(received)
        result = yield request


def _check_unchanged(received: Sequence[torch.Tensor]) -> None:
    if any(vector._version for vector in received):
        raise RayflError("its update modified a vector that was sent to all clients; work on a copy")


def check_lengths(answer: Answer, sent_vectors: Sequence[str], model: FlatModel) -> None:
    """Checks the vectors of all parameters in an answer, since a user's algorithm may answer with anything.

    Raises:
        RayflError: A vector is not a tensor of floating point numbers, or has neither the length of a model vector nor
            of its parameters' part.
    """
    params, whole = len(model.params), len(model.vector)
    for name in sent_vectors:
        vector = answer.values.get(name, answer.sums.get(name))
        if vector is not None and not isinstance(vector, torch.Tensor):
            raise RayflError(f"it answered with '{name}' as a {type(vector).__name__}, not a torch.Tensor")
        if vector is not None and not vector.is_floating_point():
            raise RayflError(
                f"it answered with '{name}' of dtype {vector.dtype}, which holds no fractions of a change; return "
                "floating point numbers, converted before the parameters are subtracted or scaled"
            )
        if vector is not None and vector.numel() not in (params, whole):
            raise RayflError(
                f"it answered with '{name}' of {vector.numel()} values; it must have {params} (the parameters' part of "
                f"a model vector, including padding) or {whole} (the whole vector)"
            )


def add_diagnostics(
    plan: PhasePlan, client: ClientContext, answer: Answer, send: Sequence[torch.Tensor], summed: bool
) -> None:
    """Adds the diagnostics of the trained model that the phase's `eval_model` and reports need, in place.

    Args:
        plan: The phase.
        client: The client.
        answer: The client's answer.
        send: The vectors sent to it, beginning with the model that it trained from.
        summed: Whether the answer's values are summed rather than kept one by one.

    Raises:
        RayflError: The exchange sent no model, or the trained model has another length.
    """
    if not (plan.evaluated.reads_trained or plan.diagnostics.reads_trained):
        return
    trained, delta = answer.trained, answer.values.get("delta")
    if trained is None and delta is None:
        return
    if not send:
        wanted = f"eval_model = '{plan.evaluated.rule}'" if plan.evaluated.reads_trained else "report = ['divergence']"
        raise RayflError(f"{wanted} needs the model that clients train from; make it the first vector that you send")
    if trained is not None and trained.shape != send[0].shape:
        raise RayflError(
            f"it answered with a trained model of shape {list(trained.shape)}, but was sent one of shape "
            f"{list(send[0].shape)}"
        )
    change = delta if trained is None else trained - send[0]
    if change is None or change.shape != send[0].shape:
        return
    answer.diagnostics |= plan.evaluated.diagnose(client, answer, send[0], change, summed)
    answer.diagnostics |= plan.diagnostics.diagnose(client.num_params, change)


def apply_transforms(plan: PhasePlan, client: ClientContext, answer: Answer) -> tuple[int, int]:
    """Applies the phase's transforms to an answer, in place; returns the values and bits that they save."""
    saved_values = saved_bits = 0
    for name in plan.algorithm.sent_vectors if plan.transforms else ():
        vectors = answer.values if name in answer.values else answer.sums
        if name not in vectors:
            continue
        whole = message = Encoded(vectors[name][: client.num_params], client.num_values)
        for transform in plan.transforms:
            message = transform.transform(client, name, message)
        vectors[name] = torch.cat([message.values, vectors[name][client.num_params :]])
        saved_values += whole.count - message.count
        saved_bits += whole.bits - message.bits
    return saved_values, saved_bits
