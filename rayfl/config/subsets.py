"""`data.classes` and `data.owners`: which classes, and which of the data's own clients, a scenario uses.

All of them are put in a random order, and places in that order are kept. Scenarios that agree on the order can hold
some of them back from each other: one that pre-trains takes the first 80 classes, one that starts from it the last 20.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from rayfl.config.section import Section

Range = tuple[NonNegativeInt, PositiveInt]
"""From the first place up to, but not including, the second."""


class Places(Section):
    """Places in a random order.

    Attributes:
        places: Ranges, such as [[0, 10], [80, 90]]: places 0 to 9 and 80 to 89. They must not overlap.
        order_seed: Of the order alone, so that it does not change with `seed` or `data.seed`.
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
        """How many places there are."""
        return sum(stop - start for start, stop in self.places)

    @property
    def end(self) -> int:
        """The end of the last range: so many there must be at least."""
        return max(stop for _, stop in self.places)


class Classes(Places):
    """Which classes a scenario uses, of data whose labels are classes.

    Samples of all other classes are left out, for training and testing alike. The classes are renumbered 0, 1, ... in
    the order of their numbers. Of the data's own clients, those without training samples of these classes are left out.

    Attributes:
        draw: How many of the classes at these places to draw, with the data's seed; by default all of them.
    """

    draw: PositiveInt | None = None

    @model_validator(mode="after")
    def _enough_to_draw_from(self) -> Classes:
        if self.draw is not None and self.draw > self.number:
            raise ValueError(f"draw: {self.draw} classes cannot be drawn from {self.number} places")
        return self


class Owners(Places):
    """Which of the data's own clients (the writers of FEMNIST) a scenario uses; `data.clients` draws from these.

    Attributes:
        of: How many clients of its own the data must have at least; generated data has exactly so many. By default
            there may be any number, and all that there are are put in order.
    """

    of: PositiveInt | None = None

    @model_validator(mode="after")
    def _places_within(self) -> Owners:
        if self.of is not None and self.end > self.of:
            raise ValueError(f"places: the last range ends at {self.end}, beyond the {self.of} that 'of' says")
        return self
