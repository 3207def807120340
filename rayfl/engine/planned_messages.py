"""Sizes of a phase's messages to and from one client, known before the run, for the virtual clock."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rayfl.algorithms.alone import Alone
from rayfl.algorithms.exchange import Messages, Part
from rayfl.algorithms.transforms import Encoded
from rayfl.engine.message_sizes import MessageSizes
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.planning.message import Message
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.update_work import exchanges_of_cohort
from rayfl.planning.workload import Workload


def planned_messages(plan: PhasePlan, model: FlatModel, workload: Workload) -> list[Message]:
    """Returns the messages of a phase: one per exchange that the cohort answers, or one for a relay's hop.

    Raises:
        ScenarioError: The algorithm or a transform cannot tell their sizes beforehand; names the key.
    """
    where, sizes = f"phases.{plan.phase.name}", MessageSizes.of(plan, model, workload.initial.frozen)
    messages: Messages = [] if plan.phase.pool else [(("model",), ("model",))]
    if plan.phase.has_server or isinstance(plan.algorithm, Alone):
        try:
            messages = plan.algorithm.messages()
        except ScenarioError as error:
            raise ScenarioError(f"{where}.algorithm: {error}") from None
        _check_declared(plan, len(messages), where)
        messages = _with_first_model(plan, messages)
    try:
        return [_planned(plan, sizes, down, up) for down, up in messages]
    except ScenarioError as error:
        raise ScenarioError(f"{where}.transforms: {error}") from None


def _check_declared(plan: PhasePlan, messages: int, where: str) -> None:
    """Checks what a user's algorithm declares about its exchanges."""
    answered, name = exchanges_of_cohort(plan), plan.phase.algorithm.name
    if messages != len(answered):
        raise ScenarioError(
            f"{where}.algorithm: messages() of '{name}' names {messages} exchanges, but clients answer {len(answered)}"
        )
    strange = [request.exchange for request in plan.algorithm.sample_requests() if request.exchange not in answered]
    if len(answered) > 1 and strange:
        raise ScenarioError(
            f"{where}.algorithm: sample_requests() of '{name}' names exchange {strange[0]}, but clients answer "
            f"{' and '.join(map(str, answered))}; give each request its `exchange`"
        )


def _with_first_model(plan: PhasePlan, messages: Messages) -> Messages:
    """Adds the phase's first model, if clients read it, to the exchanges in which they train."""
    if not plan.algorithm.reads_first_model():
        return messages
    trained = {request.exchange for request in plan.algorithm.sample_requests() if request.kind == "training"}
    numbered = zip(exchanges_of_cohort(plan), messages, strict=True)
    return [
        ((*down, "model"), up) if len(messages) == 1 or number in trained else (down, up)
        for number, (down, up) in numbered
    ]


def _planned(plan: PhasePlan, sizes: MessageSizes, down: Sequence[Part], up: Sequence[Part]) -> Message:
    saved_values = saved_bits = 0
    for _ in (part for part in up if plan.transforms and not isinstance(part, int)):
        whole = message = Encoded(torch.empty(0), sizes.num_params)
        for transform in plan.transforms:
            message = transform.planned(message)
        saved_values += whole.count - message.count
        saved_bits += whole.bits - message.bits
    return Message(sizes.traffic(down, ()), sizes.traffic((), up, saved_values, saved_bits))
