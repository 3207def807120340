"""What the rounds of a phase exchange and request, as found by running them on a symbolic client before the run.

`rayfl.engine.plan.symbolic_rounds` makes a trace; this module loads no PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from rayfl.algorithms.algorithm import Algorithm, MessageHooks
from rayfl.algorithms.exchange import Asked, Part
from rayfl.algorithms.limits import PrivacyHooks, SampleRequest


@dataclass(frozen=True)
class TracedExchange:
    """One exchange of a traced round.

    Attributes:
        at: Who answers it.
        down: The parts that the server sends, without the phase's first model.
        up: The parts that it gets back.
        with_first_model: Whether the phase's first model is sent along if clients read it.
        requests: The requests of a client update that read a client's samples; empty unless the cohort answers.
        trained: Whether the clients' answers name a trained model, or its change.
    """

    at: Asked
    down: tuple[Part, ...]
    up: tuple[Part, ...]
    with_first_model: bool = True
    requests: tuple[SampleRequest, ...] = ()
    trained: bool = False


TracedRound = Sequence[TracedExchange]


@dataclass(frozen=True)
class Trace:
    """The traced rounds of one phase.

    Attributes:
        first: The phase's first round.
        later: Its second and last round, for any size of the cohort; the first if there is no other.
        vectors: Names of the answers' vectors that are as long as a model or its parameters, and `delta`.
        reads_first_model: Whether clients read the phase's first model.
        unknown: Why what clients exchange and request cannot be known beforehand; empty if it is. `first` and `later`
            then hold what was seen.
    """

    first: TracedRound = ()
    later: TracedRound = ()
    vectors: tuple[str, ...] = ()
    reads_first_model: bool = False
    unknown: str = ""


def is_declared(algorithm: Algorithm, name: str) -> bool:
    """Whether the algorithm's class, or a base of it below rayfl's base classes, declares what a trace would show."""
    owner = next(kind for kind in type(algorithm).__mro__ if name in vars(kind))
    return owner not in (Algorithm, MessageHooks, PrivacyHooks)


def exchange_error(asked: Sequence[Asked], number: int, at: Asked | None, declared: int) -> str:
    """Returns why an exchange of a round is not the expected one; empty if it is.

    Args:
        asked: Who answers each exchange of a round.
        number: The exchange's number, from 0.
        at: Who answers it; None at the round's end.
        declared: The number of exchanges that the algorithm is to yield.
    """
    if (at is not None) != (number < len(asked)):
        return (
            f"a round must yield {declared} exchanges (its `exchanges`), but this one yields "
            f"{'more' if at else f'only {number}'}"
        )
    if at is not None and at != asked[number]:
        return f"exchange {number} has at='{at}', but `asks()` returns '{asked[number]}' for it"
    return ""


def written(requests: Iterable[SampleRequest]) -> str:
    """Requests as `sample_requests` would return them, in Python."""
    listed = []
    for request in requests:
        values = {one.name: getattr(request, one.name) for one in fields(request)}
        arguments = [f"{name}={value!r}" for name, value in values.items() if value != getattr(SampleRequest(), name)]
        listed.append(f"SampleRequest({', '.join(arguments)})")
    return f"({', '.join(listed)}{',' * (len(listed) == 1)})"


def declared_exchanges(algorithm: Algorithm) -> int | None:
    """The number of exchanges in a round if the algorithm's class declares it."""
    declared = is_declared(algorithm, "asks") or is_declared(algorithm, "exchanges")
    return len(algorithm.asks()) if declared else None
