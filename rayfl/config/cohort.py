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
    """Every client takes part with this probability, independently; redrawn while the cohort is empty.

    With central `dp` nothing is redrawn: a round without clients is noise alone.
    """

    bernoulli: Annotated[float, Field(gt=0, le=1)]


class BySize(Section):
    """This many clients without replacement, drawn in proportion to their numbers of training samples (q-FFL)."""

    by_size: Annotated[int, Field(strict=True, ge=1)]


class Explicit(Section):
    """Lists of client ids, one per round, repeated in order."""

    explicit: Annotated[tuple[Annotated[tuple[int, ...], Field(min_length=1)], ...], Field(min_length=1)]


class BySampler(Section):
    """Drawn by a class: `{ sampler = "power_of_choice", clients = 10, candidates = 30 }`.

    The other keys are its options, which are checked against the class.

    Attributes:
        sampler: A registered name, or `package.module:object` for one of the user's own.
    """

    model_config = ConfigDict(extra="allow")

    sampler: str

    @model_validator(mode="after")
    def _options_are_plain(self) -> BySampler:
        check_plain(self.options)
        return self

    @property
    def options(self) -> dict[str, Any]:
        """The options as they were given."""
        return dict(self.model_extra or {})


class Pooled(Section):
    """No clients, but pooled samples: what the rounds of central training have for a cohort.

    Attributes:
        pool: `clients` or `server`.
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
