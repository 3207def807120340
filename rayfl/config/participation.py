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
    """A number for every client between two, all of them alike in density."""

    uniform: Pair


class LogNormal(Section):
    """A number for every client whose logarithm is normally distributed: its median, and sigma of the logarithm."""

    lognormal: Pair


class Kinds(Section):
    """One of these numbers for every client, each as likely as the others; one that is listed twice is twice as likely.

    That is, kinds of devices: `{ kinds = [2, 2, 10] }`.
    """

    kinds: Annotated[tuple[NonNegativeFloat, ...], Field(min_length=1)]


class Traced(Section):
    """A column of a Parquet file.

    With a column `client` (whole numbers) a row is that client's, and every client has exactly one. Without one, rows
    are devices: every client draws one, the same for all keys that name the file.

    Attributes:
        file: The file; a relative path lies beside the file that names it.
        column: Its column; by default it is called as the key.
    """

    file: str
    column: str | None = None


class Sessions(Section):
    """When clients are available: a row of a Parquet file per client and interval.

    Its columns are `client` (whole numbers), `begins` and `ends`, in virtual seconds since the start of the run. A
    client without a row is never available.

    Attributes:
        sessions: The file; a relative path lies beside the file that names it.
        repeat_s: After so many virtual seconds the intervals begin anew: 86400 for those of a day. By default they do
            not, and nobody is available once the last of them is over.
    """

    sessions: str
    repeat_s: PositiveFloat | None = None


def _allowed(words: str, most: float = math.inf, zero: bool = True) -> WrapValidator:
    """Checks the range, and says what is allowed instead of complaining for each member of a union."""

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            found = validate(value)
        except ValidationError:
            raise PydanticCustomError("quantity", f"allowed are {words}") from None
        ends = _range(found)
        if not (0 <= ends[0] <= ends[-1] <= most and (zero or ends[0] > 0)):
            raise PydanticCustomError("quantity", f"allowed are {words}")
        return found

    return WrapValidator(check)


def _range(given: Any) -> tuple[float, ...]:
    """The least and the most of what is drawn, as far as they are given; a file is checked when it is read."""
    match given:
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
"""A number above 0: the same for all clients, or drawn or read for every client."""

Probability = Annotated[
    float | Between | Kinds | Traced,
    _allowed("a probability (0.0 to 1.0), or " + _BY_CLIENT.format("", _IN_FILE), most=1),
]
"""A probability: the same for all clients, or drawn or read for every client."""

Availability = Annotated[
    float | Between | Kinds | Traced | Sessions,
    _allowed("a probability (0.0 to 1.0), { sessions = path }, or " + _BY_CLIENT.format("", _IN_FILE), most=1),
]
"""A probability like the others, or intervals of virtual time."""


class Devices(Section):
    """The devices that clients are simulated on: how fast, how well connected, how reliable.

    A virtual clock times the rounds of a run with them, whatever the machine needs that runs it; see
    docs/how-to/slow-clients.md. A client's part of an exchange takes down_bytes / down_bytes_per_s + steps / steps_per_s +
    up_bytes / up_bytes_per_s virtual seconds. What a key that is left out would slow down takes no time. Everything
    that is drawn follows from the scenario's seed.

    A quantity is a number, the same for all clients, or differs between them: `{ lognormal = [20, 0.5] }` (the median,
    and sigma of the logarithm), `{ uniform = [5, 50] }`, `{ kinds = [5, 50] }`, each drawn once for every client, or a
    column of a Parquet file, `{ file = "devices.parquet", column = "speed" }`.

    Attributes:
        steps_per_s: Local steps that a client computes in a virtual second; a loss or gradient of all of its samples
            counts as the steps of an epoch.
        samples_per_s: Instead of that, training samples, so that a step takes as long as its batch is large.
        down_bytes_per_s: Bytes of a message from the server that a client receives in a virtual second.
        up_bytes_per_s: Bytes of its answer that it sends.
        dropout: The probability that the answer of a client which takes part in a round never arrives.
        availability: The probability that a client which is drawn for a round is there when it begins. Or a file of the
            intervals of virtual time in which clients are there, `{ sessions = "sessions.parquet" }`; one that ends
            before a client's answer is in has it drop out.
        compute_watts: What a device draws while it computes, for the energy that clients use.
        transmit_watts: What it draws while it receives and sends.
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
            raise ValueError("has no effect without a key; give one, steps_per_s say, or leave the table out")
        if self.steps_per_s and self.samples_per_s:
            raise ValueError("steps_per_s and samples_per_s are two units of the same speed; give one of them")
        computes, transmits = self.steps_per_s or self.samples_per_s, self.down_bytes_per_s or self.up_bytes_per_s
        check_idle(self, {"compute_watts": not computes}, "without steps_per_s or samples_per_s")
        check_idle(self, {"transmit_watts": not transmits}, "without down_bytes_per_s or up_bytes_per_s")
        if isinstance(self.availability, Sessions) and not self.has_clock:
            raise ValueError(
                "availability: sessions are intervals of virtual time, and none passes; give steps_per_s, "
                "samples_per_s, down_bytes_per_s or up_bytes_per_s"
            )
        return self
