"""`phases.N.cohort`: which clients take part in a round."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rayfl.config.section import Section, check_plain


class Bernoulli(Section):
    """Every client takes part independently with the same probability.

    An empty cohort is drawn again, except with central `dp`: then a round without clients is noise alone.

    Attributes:
        bernoulli: The probability, above 0 and at most 1.
    """

    bernoulli: Annotated[float, Field(gt=0, le=1)]


class BySize(Section):
    """Draws clients without replacement, in proportion to their numbers of training samples (q-FFL).

    Attributes:
        by_size: Number of clients, at least 1.
    """

    by_size: Annotated[int, Field(strict=True, ge=1)]


class Explicit(Section):
    """Lists the clients of every round.

    Attributes:
        explicit: One list of client ids per round, none of them empty; the lists repeat in order when they run out.
    """

    explicit: Annotated[tuple[Annotated[tuple[int, ...], Field(min_length=1)], ...], Field(min_length=1)]


class BySampler(Section):
    """The cohort is drawn by a class: `{ sampler = "power_of_choice", clients = 10, candidates = 30 }`.

    All other keys are options of the class and are checked against its signature.

    Attributes:
        sampler: A registered name, or `package.module:object` for your own class.
    """

    model_config = ConfigDict(extra="allow")

    sampler: str

    @model_validator(mode="after")
    def _options_are_plain(self) -> BySampler:
        check_plain(self.options)
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The options as the scenario gives them."""
        return dict(self.model_extra or {})


class Pooled(Section):
    """Pooled samples in place of clients: the cohort of a round of centralised training.

    Attributes:
        pool: The owner of the samples: `clients` or `server`.
    """

    pool: Literal["clients", "server"]


def _cohort(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        raise PydanticCustomError(
            "cohort",
            "allowed are a number of clients (1, 2, ...), a share of them (0.0 < share <= 1.0), "
            "{ bernoulli = probability }, { by_size = number }, { explicit = [[client, ...], ...] }, "
            "or { sampler = name, ... }",
        ) from None


Cohort = Annotated[
    Annotated[int, Field(strict=True, ge=1)]
    | Annotated[float, Field(strict=True, gt=0, le=1)]
    | Bernoulli
    | BySize
    | Explicit
    | BySampler,
    WrapValidator(_cohort),
]
"""The key `cohort`: a number of clients, a share of them, or a table; see `ParallelPhase.cohort`."""
