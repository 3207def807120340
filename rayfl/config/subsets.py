"""`data.classes` and `data.owners`: the classes and the data's clients that a scenario uses.

All classes (or clients) are put in a random order, and `places` selects positions in that order. Scenarios that share
the order can therefore use disjoint classes: one pre-trains on the first 80, another starts from it and uses the last
20.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from rayfl.config.section import Section

Range = tuple[NonNegativeInt, PositiveInt]
"""From the first position up to, but not including, the second."""


class Places(Section):
    """Positions in a random order.

    Attributes:
        places: Ranges of positions, end excluded: [[0, 10], [80, 90]] selects 0 to 9 and 80 to 89. They must not
            overlap.
        order_seed: Seed of the order, which is therefore independent of `seed` and `data.seed`. Default: 0.
    """

    places: Annotated[tuple[Range, ...], Field(min_length=1)]
    order_seed: NonNegativeInt = 0

    @model_validator(mode="after")
    def _ranges_are_apart(self) -> Places:
        for start, stop in self.places:
            if start >= stop:
                raise ValueError(f"places: the range [{start}, {stop}] is empty; the end is not included")
        ordered = sorted(self.places)
        for (start, stop), (other, end) in pairwise(ordered):
            if other < stop:
                raise ValueError(f"places: the ranges [{start}, {stop}] and [{other}, {end}] overlap")
        return self

    @property
    def number(self) -> int:
        """Number of positions."""
        return sum(stop - start for start, stop in self.places)

    @property
    def end(self) -> int:
        """The end of the last range: the minimum number of classes or clients that the data must have."""
        return max(stop for _, stop in self.places)


class Classes(Places):
    """Which classes a scenario uses, for data whose labels are classes.

    Samples of all other classes are dropped, for training and testing. The remaining classes are renumbered 0, 1, ...
    in the order of their numbers. The data's own clients without training samples of these classes are dropped.

    Attributes:
        draw: Number of classes to draw from these positions with the data's seed. By default all of them are used.
    """

    draw: PositiveInt | None = None

    @model_validator(mode="after")
    def _enough_to_draw_from(self) -> Classes:
        if self.draw is not None and self.draw > self.number:
            raise ValueError(f"draw: {self.draw} classes cannot be drawn from {self.number} places")
        return self


class Owners(Places):
    """The data's clients (the writers of FEMNIST) that a scenario uses; `data.clients` draws from these.

    Attributes:
        of: Minimum number of clients that the data must have; generated data has exactly this number. By default any
            number will do, and all clients of the data are ordered.
    """

    of: PositiveInt | None = None

    @model_validator(mode="after")
    def _places_within(self) -> Owners:
        if self.of is not None and self.end > self.of:
            raise ValueError(f"places: the last range ends at {self.end}, beyond of = {self.of}")
        return self
