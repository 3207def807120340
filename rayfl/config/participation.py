"""[participation]: the devices that clients are simulated on, for a virtual clock and clients that do not answer."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rayfl.config.section import Section, check_idle

Pair = Annotated[tuple[NonNegativeFloat, ...], Field(min_length=2, max_length=2)]


class Between(Section):
    """A number for every client, drawn uniformly from an interval.

    Attributes:
        uniform: The smallest and the largest value, [least, most].
    """

    uniform: Pair


class LogNormal(Section):
    """A number for every client whose logarithm is normally distributed.

    Attributes:
        lognormal: The median and the standard deviation sigma of the logarithm, [median, sigma].
    """

    lognormal: Pair


class Kinds(Section):
    """Kinds of devices: `{ kinds = [2, 2, 10] }`.

    Attributes:
        kinds: Each client gets one of these numbers, all equally likely; a number that is listed twice is twice as
            likely.
    """

    kinds: Annotated[tuple[NonNegativeFloat, ...], Field(min_length=1)]


class Traced(Section):
    """A column of a Parquet file.

    If the file has a column `client` (whole numbers), each row belongs to that client, and every client must have
    exactly one. Otherwise the rows are devices: every client draws one, the same for all keys that name the file.

    Attributes:
        file: Path of the file, relative to the file that names it.
        column: Name of the column. By default the name of the key.
    """

    file: str
    column: str | None = None


class Sessions(Section):
    """When clients are available: a Parquet file with one row per client and interval.

    Its columns are `client` (whole numbers), `begins` and `ends`, in virtual seconds since the start of the run. A
    client without a row is never available.

    Attributes:
        sessions: Path of the file, relative to the file that names it.
        repeat_s: Virtual seconds after which the intervals repeat, 86400 for daily ones. By default they do not repeat,
            and no client is available after the last of them.
    """

    sessions: str
    repeat_s: PositiveFloat | None = None


def _allowed(words: str, most: float = math.inf, zero: bool = True) -> WrapValidator:
    """Checks the range, and says what is allowed instead of complaining for each member of a union."""

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            validated = validate(value)
        except ValidationError:
            raise PydanticCustomError("quantity", f"allowed are {words}") from None
        ends = _range(validated)
        if not (0 <= ends[0] <= ends[-1] <= most and (zero or ends[0] > 0)):
            raise PydanticCustomError("quantity", f"allowed are {words}")
        return validated

    return WrapValidator(check)


def _range(quantity: Any) -> tuple[float, ...]:
    """The least and the largest value that can be drawn, as far as known; a file is checked when it is read."""
    match quantity:
        case Between(uniform=ends):
            return ends
        case LogNormal(lognormal=(median, _)):
            return (median,)
        case Kinds(kinds=numbers):
            return min(numbers), max(numbers)
        case Section():
            return (1.0,)
        case number:
            return (number,)


_BY_CLIENT = "one for every client: {{ uniform = [least, most] }}, {}{{ kinds = [number, ...] }} or {}"
_IN_FILE = "{ file = path, column = name }"

Quantity = Annotated[
    float | Between | LogNormal | Kinds | Traced,
    _allowed("a number above 0, or " + _BY_CLIENT.format("{ lognormal = [median, sigma] }, ", _IN_FILE), zero=False),
]
"""A number above 0: the same for all clients, or drawn or read for each client."""

Probability = Annotated[
    float | Between | Kinds | Traced,
    _allowed("a probability (0.0 to 1.0), or " + _BY_CLIENT.format("", _IN_FILE), most=1),
]
"""A probability: the same for all clients, or drawn or read for each client."""

Availability = Annotated[
    float | Between | Kinds | Traced | Sessions,
    _allowed("a probability (0.0 to 1.0), { sessions = path }, or " + _BY_CLIENT.format("", _IN_FILE), most=1),
]
"""A probability as above, or intervals of virtual time."""


class Devices(Section):
    """The devices that clients are simulated on: how fast, how well connected, how reliable.

    A virtual clock times the rounds of a run with these devices, independently of the real machine. A client's part of
    an exchange takes down_bytes / down_bytes_per_s + steps / steps_per_s + up_bytes / up_bytes_per_s virtual seconds; a
    key that is left out takes no time. All draws follow from the scenario's seed.

    A quantity is one number for all clients, or differs between clients: `{ lognormal = [20, 0.5] }` (the median, and
    sigma of the logarithm), `{ uniform = [5, 50] }`, `{ kinds = [5, 50] }`, each drawn once for every client, or a
    column of a Parquet file, `{ file = "devices.parquet", column = "speed" }`.

    Attributes:
        steps_per_s: Local steps that a client computes per virtual second; a loss or gradient of all of its samples
            counts as the steps of one epoch. Excludes `samples_per_s`. By default computing takes no time.
        samples_per_s: Training samples that a client computes per virtual second, so larger batches take longer.
            Excludes `steps_per_s`. By default computing takes no time.
        down_bytes_per_s: Bytes that a client receives from the server per virtual second. By default receiving takes no
            time.
        up_bytes_per_s: Bytes that a client sends to the server per virtual second. By default sending takes no time.
        dropout: Probability that the answer of a participating client never arrives. Default: 0.
        availability: Probability that a client drawn for a round is available when it begins; or a file with the
            intervals of virtual time in which clients are available, `{ sessions = "sessions.parquet" }`. A client
            whose interval ends before its answer arrives drops out. Default: 1.
        compute_watts: Power in watts that a device draws while computing, for the clients' energy use. Needs
            `steps_per_s` or `samples_per_s`. By default computing uses no energy.
        transmit_watts: Power in watts that a device draws while receiving and sending. Needs `down_bytes_per_s` or
            `up_bytes_per_s`. By default transmission uses no energy.
    """

    steps_per_s: Quantity | None = None
    samples_per_s: Quantity | None = None
    down_bytes_per_s: Quantity | None = None
    up_bytes_per_s: Quantity | None = None
    dropout: Probability = 0.0
    availability: Availability = 1.0
    compute_watts: Quantity | None = None
    transmit_watts: Quantity | None = None

    @property
    def has_clock(self) -> bool:
        """Whether anything takes virtual time."""
        return any((self.steps_per_s, self.samples_per_s, self.down_bytes_per_s, self.up_bytes_per_s))

    @property
    def has_power(self) -> bool:
        """Whether energy is counted."""
        return bool(self.compute_watts or self.transmit_watts)

    @model_validator(mode="after")
    def _consistent(self) -> Devices:
        if not self.model_fields_set:
            raise ValueError("has no effect without any key; set one, for example steps_per_s, or leave the table out")
        if self.steps_per_s and self.samples_per_s:
            raise ValueError("steps_per_s and samples_per_s set the same speed in different units; give one of them")
        computes, transmits = self.steps_per_s or self.samples_per_s, self.down_bytes_per_s or self.up_bytes_per_s
        check_idle(self, {"compute_watts": not computes}, "without steps_per_s or samples_per_s")
        check_idle(self, {"transmit_watts": not transmits}, "without down_bytes_per_s or up_bytes_per_s")
        if isinstance(self.availability, Sessions) and not self.has_clock:
            raise ValueError(
                "availability: sessions are intervals of virtual time, which does not pass here; give steps_per_s, "
                "samples_per_s, down_bytes_per_s or up_bytes_per_s"
            )
        return self
