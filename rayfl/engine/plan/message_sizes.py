"""Sizes of the protocol's messages in values and bytes, without padding, and without parameters that never change.

The virtual clock needs those of a phase's messages to and from one client before the run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from rayfl.algorithms.exchange import Messages, Part
from rayfl.algorithms.transforms import FLOAT_BITS, Encoded
from rayfl.config.phase import AsynchronousPhase
from rayfl.engine.plan.participation import exchanges_of_cohort, unplanned_traffic
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.run_plan import TrainedPart
from rayfl.engine.plan.workload import Workload
from rayfl.engine.totals import Message, Traffic
from rayfl.errors import ScenarioError
from rayfl.local.training_plan import Selection, select
from rayfl.models.flat import FlatModel


class MessageSizes:
    """Sizes of one phase's messages.

    Attributes:
        num_params: Values of all parameters that the phase trains.
        num_buffers: Values of the floating-point buffers that are sent, such as batch norm's statistics, and of modules
            that follow others.
        num_discrete: Values of the integer and boolean buffers that are sent, which are those that may change.
        discrete_bits: Their size.
    """

    def __init__(
        self,
        model: FlatModel,
        selection: Selection | None,
        buffers_are_sent: bool,
        stays_local: Collection[str] = (),
        frozen: Collection[str] = (),
    ) -> None:
        """Counts the values.

        Args:
            model: The resident model.
            selection: The parameters that may change in the phase; None for all.
            buffers_are_sent: Whether buffers travel with the parameters.
            stays_local: Names of the parameters and buffers that clients keep to themselves.
            frozen: Names of the parameters and of integer and boolean buffers that nothing changes
                (see `build_checked`).
        """
        left_out = {*stays_local, *frozen}
        excluded = {slot.name for slot in model.slots_of(left_out)}
        changing = [slot for slot in model.layout if selection is None or selection.tensors.intersection(slot.names)]
        sent = [slot for slot in changing if slot.name not in excluded]
        self.num_params = sum(slot.size for slot in sent if slot.is_parameter)
        self.num_buffers = sum(slot.size for slot in sent if not slot.is_parameter) if buffers_are_sent else 0
        beside = [
            value
            for name, value in model.initial_discrete().items()
            if buffers_are_sent and (selection is None or name in selection.tensors) and name not in left_out
        ]
        self.num_discrete = sum(value.numel() for value in beside)
        self.discrete_bits = 8 * sum(value.nbytes for value in beside)

    @classmethod
    def of(cls, plan: PhasePlan, model: FlatModel, frozen: Collection[str]) -> MessageSizes:
        """Returns the message sizes of a phase that trains a model; `frozen` names what nothing changes in it."""
        selection, algorithm = select(plan.train, model.module), plan.algorithm
        return cls(model, selection, algorithm.buffers_are_sent(), algorithm.stays_local(model.module), frozen)

    @classmethod
    def part_trained(cls, plan: PhasePlan, model: FlatModel, frozen: Collection[str]) -> TrainedPart:
        """Returns how much of a network a phase trains and sends; arguments as for `of`."""
        selection, sizes = select(plan.train, model.module), cls.of(plan, model, frozen)
        trained = cls(model, selection, buffers_are_sent=False).num_params
        all_parameters = sum(parameter.numel() for parameter in model.module.parameters())
        return TrainedPart(trained, all_parameters, sizes.values(["model"]))

    def values(self, parts: Sequence[Part]) -> int:
        """Returns the number of values in a message of these parts."""
        sizes = {"model": self.num_params + self.num_buffers + self.num_discrete, "params": self.num_params}
        return sum(part if isinstance(part, int) else sizes[part] for part in parts)

    def traffic(self, down: Sequence[Part], up: Sequence[Part], saved_values: int = 0, saved_bits: int = 0) -> Traffic:
        """Returns one client's traffic in an exchange.

        Args:
            down: Parts that the server sends.
            up: Parts that the client answers with.
            saved_values: Values that transforms left out of the answer.
            saved_bits: Bits that transforms saved.
        """
        down_values, up_values = self.values(down), self.values(up)
        # of every model that is sent, what its integers and flags take beyond floats, which may be less than nothing
        beyond = self.discrete_bits - self.num_discrete * FLOAT_BITS
        down_bits, up_bits = (
            values * FLOAT_BITS + parts.count("model") * beyond
            for values, parts in ((down_values, down), (up_values, up))
        )
        return Traffic(
            transfers=sum(not isinstance(part, int) for part in (*down, *up)),
            down_values=down_values,
            up_values=up_values - saved_values,
            down_bytes=down_bits // 8,
            up_bytes=-(-(up_bits - saved_bits) // 8),
        )


def planned_messages(plan: PhasePlan, model: FlatModel, workload: Workload, first_round: bool = False) -> list[Message]:
    """Returns the messages of a round: one per exchange that the cohort answers, or one for a relay's hop.

    Args:
        plan: The phase.
        model: Its model.
        workload: Its workload.
        first_round: Whether the round is the phase's first.

    Raises:
        ScenarioError: The algorithm or a transform cannot tell their sizes beforehand; names the key.
    """
    where, sizes = f"phases.{plan.phase.name}", MessageSizes.of(plan, model, workload.initial.frozen)
    messages: Messages = [] if plan.phase.pool else [(("model",), ("model",))]
    if plan.runs_rounds:
        try:
            messages = plan.protocol(first_round)
        except ScenarioError as error:
            at = f"{where}.algorithm: "
            raise ScenarioError(at + str(error).removeprefix(at)) from None
        _check_declared(plan, len(messages), where)
    try:
        planned = [_planned(plan, sizes, down, up) for down, up in messages]
        traced = [_planned(plan, sizes, down, up) for down, up in plan.traced_messages(first_round)]
    except ScenarioError as error:
        raise ScenarioError(f"{where}.transforms: {error}") from None
    if plan.runs_rounds and not plan.traced.unknown:
        _check_traced(plan, planned, traced, plan.first_round if first_round else plan.first_round + 1)
    overlap = first_round and isinstance(plan.phase, AsynchronousPhase)
    if overlap and planned != planned_messages(plan, model, workload):
        raise ScenarioError(
            f"{where}.algorithm: '{plan.phase.algorithm.name}' sends something else in its first round, whose updates "
            f"schedule = '{plan.phase.schedule}' mixes with later ones; use a parallel phase"
        )
    return planned


def _check_traced(plan: PhasePlan, planned: Sequence[Message], traced: Sequence[Message], round: int) -> None:
    """Checks what a user's algorithm declares about its messages against its traced rounds."""
    sums = [(sum(one.down.down_bytes for one in all), sum(one.up.up_bytes for one in all)) for all in (planned, traced)]
    for way, expected, moved in zip(("down", "up"), *sums, strict=True):
        if moved != expected:
            raise ScenarioError(unplanned_traffic(plan, round, way, moved, 1, expected))


def _check_declared(plan: PhasePlan, messages: int, where: str) -> None:
    """Checks what a user's algorithm declares about its exchanges."""
    answered, name = exchanges_of_cohort(plan), plan.phase.algorithm.name
    if messages != len(answered):
        raise ScenarioError(
            f"{where}.algorithm: messages() of '{name}' names {messages} exchanges, but clients answer {len(answered)}"
        )
    unknown = [request.exchange for request in plan.sample_requests() if request.exchange not in answered]
    if len(answered) > 1 and unknown:
        raise ScenarioError(
            f"{where}.algorithm: sample_requests() of '{name}' names exchange {unknown[0]}, but clients answer "
            f"{' and '.join(map(str, answered))}; give each request its `exchange`"
        )


def _planned(plan: PhasePlan, sizes: MessageSizes, down: Sequence[Part], up: Sequence[Part]) -> Message:
    saved_values = saved_bits = 0
    for _ in (part for part in up if plan.transforms and not isinstance(part, int)):
        whole = message = Encoded(torch.empty(0), sizes.num_params)
        for transform in plan.transforms:
            message = transform.planned(message)
        saved_values += whole.count - message.count
        saved_bits += whole.bits - message.bits
    return Message(sizes.traffic(down, ()), sizes.traffic((), up, saved_values, saved_bits))
