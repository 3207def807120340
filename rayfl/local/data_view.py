"""A subset of a client's training samples, for requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rayfl.errors import ScenarioError


@dataclass(frozen=True)
class DataView:
    """Some of a client's training samples; views of one client may overlap.

    You get the view of all samples as `ClientContext.data`, and parts of it from `split`.

    Attributes:
        places: int64 [n], the samples' positions in the client's shard.
        augment: Whether to augment batches; None for the request's default (training augments, losses and gradients do
            not).
        part: Name of a part of the samples that is drawn once and for all and overlaps no part of another name
            (`support`, `query`): their privacy costs compose in parallel. Empty for all other views.

    Example:
        >>> import numpy as np
        >>> from rayfl.local import DataView
        >>> query, support = DataView(np.arange(10)).split(0.2, np.random.default_rng(0))
        >>> len(query), len(support), query.augmented(False).augment
        (2, 8, False)
    """

    places: np.ndarray
    augment: bool | None = None
    part: str = ""

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.places)

    def split(self, share: float, rng: np.random.Generator) -> tuple[DataView, DataView]:
        """Splits the view at random into two, such as query and support.

        Args:
            share: Share of the samples in the first view, between 0 and 1; both views get at least one sample.
            rng: Draws the split. A stream that does not depend on the round gives the same split in all rounds.

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
        """Returns the same samples, with or without augmentation, whatever the request's default."""
        return replace(self, augment=augment)
