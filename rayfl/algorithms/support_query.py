"""Support and query samples: what a client adapts on, and what tells how well the result does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rayfl.algorithms.algorithm import Algorithm
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    import numpy as np

    from rayfl.local.context import ClientContext
    from rayfl.local.data_view import DataView


class SupportQuery(Algorithm):
    """An algorithm whose clients split their training samples in two; a base class for those of meta-learning.

    Attributes:
        query_share: What share of a client's training samples is its query set, rounded, at least one sample; one
            sample at least is left for support.
        split: `client`: every client's samples are split once, in all phases alike. `round`: anew in every round that
            it takes part in. Both follow the scenario's `seed`.
    """

    query_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    split: Literal["client", "round"] = "client"

    @property
    def parts(self) -> tuple[str, str]:
        """Names of support and query among a client's samples; empty where they are drawn anew."""
        return ("support", "query") if self.split == "client" else ("", "")

    def support_and_query(self, client: ClientContext) -> tuple[DataView, DataView]:
        """The same two views of the client's samples in every exchange of a round; queries are not augmented."""
        streams = replace(client.streams, exchange=0)
        if self.split == "client":
            streams = replace(streams, phase=0, round=0)
        query, support = client.data.split(self.query_share, streams.numpy("support and query"))
        if self.split == "client":
            support, query = replace(support, part="support"), replace(query, part="query")
        return support, query.augmented(False)

    def support_sizes(self, sizes: np.ndarray) -> np.ndarray:
        """[clients] int64, how many samples of support clients of these sizes have."""
        queries = (self.query_share * sizes).round().astype(sizes.dtype).clip(1, sizes - 1)
        support: np.ndarray = sizes - queries
        return support

    def check_clients(self, sizes: np.ndarray) -> None:
        if sizes.min() < 2:
            raise ScenarioError(
                f"client {int(sizes.argmin())} has {int(sizes.min())} training sample, too few for a support and a "
                "query set; hold fewer samples out, use fewer or other clients, or a partition with a minimum"
            )
