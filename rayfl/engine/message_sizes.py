"""Sizes of the protocol's messages in values and bytes, without padding, and without parameters that never change."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rayfl.algorithms.exchange import Part
from rayfl.algorithms.transforms import FLOAT_BITS
from rayfl.local.selection import Selection, select
from rayfl.models.flat import FlatModel
from rayfl.planning.phase_plan import PhasePlan
from rayfl.planning.totals import Traffic


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
        kept = {slot.name for slot in model.slots_of(left_out)}
        changing = [slot for slot in model.layout if selection is None or selection.tensors.intersection(slot.names)]
        sent = [slot for slot in changing if slot.name not in kept]
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
