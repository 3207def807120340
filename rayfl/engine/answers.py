"""An answer's way on a host: from a client's update through the steps that its phase needs into the sums.

An answer is checked, gets the phase's diagnostics, passes through its transforms, is hidden by client-level DP, reduced
and reported; vectors shared by all clients stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from rayfl.algorithms.exchange import MORE_IF_SUMMED, Answer, Exchange
from rayfl.algorithms.transforms import Encoded
from rayfl.config.phase import AsynchronousPhase
from rayfl.data.tensors import to_tensor
from rayfl.engine.exact_sum import SumMemory
from rayfl.engine.plan.message_sizes import MessageSizes
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.reduction import HostAnswers, LeftBuffers, Reduction
from rayfl.engine.totals import ReportBuilder, UpdateReport
from rayfl.errors import RayflError
from rayfl.local.client_state import as_arrays
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate
from rayfl.local.training_plan import select
from rayfl.models.flat import FlatModel
from rayfl.privacy.clients.mechanism import hide_answer

Step = Callable[[ClientContext, Answer], None]
"""One step of an answer's way; changes the answer in place, or adds it to the results."""


class AnswersOfHost:
    """The answers to one exchange on one host.

    Attributes:
        clients: The clients that have answered.
        first_model: The phase's first model on the device, if the exchange sends it.

    Args:
        plan: The phase.
        round_index: The round.
        exchange: What the server sends.
        model: The resident model.
        sizes: The phase's message sizes.
        fraction_bits: See `ExactSum`.
        memory: See `ExactSum`.
    """

    def __init__(
        self,
        plan: PhasePlan,
        round_index: RoundIndex,
        exchange: Exchange,
        model: FlatModel,
        sizes: MessageSizes,
        fraction_bits: int,
        memory: SumMemory | None = None,
    ) -> None:
        self._plan, self._round, self._exchange = plan, round_index.round, exchange
        self._model, self._sizes = model, sizes
        device, first_model = model.vector.device, exchange.first_model
        self._send = tuple(to_tensor(vector, slice(None), device) for vector in exchange.send)
        self.first_model = None if first_model is None else to_tensor(first_model, slice(None), device)
        self._down = exchange.down if first_model is None else (*exchange.down, "model")
        self._usual = sizes.traffic(self._down, exchange.up)
        self._saved = (0, 0)
        self._reduction = Reduction(fraction_bits, exchange.each, isinstance(plan.phase, AsynchronousPhase), memory)
        self._report = ReportBuilder()
        self.clients: set[int] = set()
        selection = select([plan.phase.train], model.module) if plan.transforms else None
        self._parts = model.parts_of(selection.tensors if selection else None)
        self._steps = self._of_cohort() if exchange.at == "cohort" else [self._reduce, self._charge]

    def _of_cohort(self) -> list[Step]:
        """The steps that the phase needs, in order."""
        plan = self._plan
        steps = (
            (self._check, True),
            (self._diagnose, plan.evaluated.reads_trained or plan.diagnostics.reads_trained),
            (self._count_if_summed, self._exchange.up_if_summed is not None),
            (self._transform, bool(plan.transforms)),
            (self._hide, plan.hiding is not None),
            (self._reduce, True),
            (self._add_to_report, True),
        )
        return [step for step, needed in steps if needed]

    def update(self, client: ClientContext) -> ClientUpdate[Answer]:
        """Runs a client's update and passes its answer through all steps.

        Raises:
            RayflError: The update changed a vector that all clients share, or its answer is not valid.
        """
        client.clip_norm, client.sent = self._exchange.clip_norm, self._send
        answer = yield from answer_of(self._exchange, client, self._send, self.first_model)
        for step in self._steps:
            step(client, answer)
        self.clients.add(client.id)
        return answer

    def report(self) -> UpdateReport:
        """The report on the updates since the last call."""
        report, self._report = self._report.result(), ReportBuilder()
        return report

    def result(self) -> HostAnswers:
        """The reduced answers of all clients."""
        return self._reduction.result()

    def _check(self, client: ClientContext, answer: Answer) -> None:
        check_lengths(answer, self._plan.sent_vectors, self._model)

    def _diagnose(self, client: ClientContext, answer: Answer) -> None:
        add_diagnostics(self._plan, client, answer, self._send, not self._exchange.each)

    def _count_if_summed(self, client: ClientContext, answer: Answer) -> None:
        assert self._exchange.up_if_summed is not None
        more = self._sizes.traffic((), self._exchange.up_if_summed).up_bytes - self._usual.up_bytes
        answer.diagnostics[MORE_IF_SUMMED] = self._send[0].new_full((1,), more, dtype=torch.float64)

    def _transform(self, client: ClientContext, answer: Answer) -> None:
        self._saved = apply_transforms(self._plan, client, answer, self._parts)

    def _hide(self, client: ClientContext, answer: Answer) -> None:
        hiding = self._plan.hiding
        assert hiding is not None
        clip_norm = self._exchange.clip_norm or hiding.clip_norm
        hide_answer(hiding, answer, clip_norm, client.num_params, client.streams)

    def _reduce(self, client: ClientContext, answer: Answer) -> None:
        self._reduction.add(client.id, answer)
        if client.discrete.values and not (self._plan.hidden_by and self._exchange.at == "cohort"):
            values = as_arrays(client.discrete.values)
            self._reduction.leave(LeftBuffers(client.id, self._round, client.num_samples, values))

    def _add_to_report(self, client: ClientContext, answer: Answer) -> None:
        usual = self._usual
        if any(self._saved):
            usual = self._sizes.traffic(self._down, self._exchange.up, *self._saved)
        self._report.add(client, usual)

    def _charge(self, client: ClientContext, answer: Answer) -> None:
        if client.scalars:
            raise RayflError("it reports scalars of a client, but no client takes part; put them into its Answer")
        self._report.charge(client)


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


def apply_transforms(plan: PhasePlan, client: ClientContext, answer: Answer, parts: Sequence[slice]) -> tuple[int, int]:
    """Applies the phase's transforms to an answer, in place.

    Args:
        plan: The phase.
        client: The client.
        answer: Its answer.
        parts: The parts of a vector that the phase trains, all that transforms see: the numbers that they draw do not
            depend on what else a vector holds.

    Returns:
        The values and bits that the transforms save.
    """
    saved_values = saved_bits = 0
    for name in plan.sent_vectors if plan.transforms else ():
        vectors = answer.values if name in answer.values else answer.sums
        if name not in vectors:
            continue
        whole = message = Encoded(torch.cat([vectors[name][part] for part in parts]), client.num_values)
        for transform in plan.transforms:
            message = transform.transform(client, name, message)
        vectors[name] = _with_parts(vectors[name], parts, message.values)
        saved_values += whole.count - message.count
        saved_bits += whole.bits - message.bits
    return saved_values, saved_bits


def _with_parts(vector: torch.Tensor, parts: Sequence[slice], values: torch.Tensor) -> torch.Tensor:
    """A vector whose parts have other values, one part after the other."""
    pieces, position = [], 0
    for part in parts[:-1]:
        length = part.stop - part.start
        pieces += [vector[position : part.start], values[:length]]
        values, position = values[length:], part.stop
    return torch.cat([*pieces, vector[position : parts[-1].start], values, vector[parts[-1].stop :]])
