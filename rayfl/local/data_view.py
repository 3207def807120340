"""A client's training samples, or a part of them, as requests name it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rayfl.errors import ScenarioError


@dataclass(frozen=True)
class DataView:
    """Some of a client's training samples; views of one client may overlap.

    Attributes:
        places: [n] int64, the samples' places in the client's shard.
        augment: Whether batches are augmented; None for what the request does by default: training augments, losses
            and gradients do not.
        part: The name of a part of the samples that is drawn once and for all, and which no part of another name
            overlaps (`support`, `query`): what is spent of their privacy composes in parallel. "" for any others.
    """

    places: np.ndarray
    augment: bool | None = None
    part: str = ""

    def __len__(self) -> int:
        return len(self.places)

    def split(self, share: float, rng: np.random.Generator) -> tuple[DataView, DataView]:
        """Splits the view at random into two, such as support and query.

        Args:
            share: What the first view gets, in (0, 1); both get one sample at least.
            rng: Draws who goes where; from a stream without the round's number, the split is the same in all rounds.

        Raises:
            ScenarioError: There are fewer than two samples, or `share` is not between 0 and 1.
        """
        if not 0 < share < 1:
            raise ScenarioError(f"a share of {share} does not split samples: it must lie between 0 and 1")
        if len(self) < 2:
            raise ScenarioError(f"{len(self)} training samples cannot be split in two")
        first = min(max(1, round(share * len(self))), len(self) - 1)
        order = rng.permutation(len(self))
        return (
            replace(self, places=self.places[np.sort(order[:first])]),
            replace(self, places=self.places[np.sort(order[first:])]),
        )

    def augmented(self, augment: bool = True) -> DataView:
        """The same samples, with or without augmentation whatever the request."""
        return replace(self, augment=augment)
