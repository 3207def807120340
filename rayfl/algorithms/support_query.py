"""Support and query samples: clients adapt on the former and evaluate the result on the latter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from rayfl.algorithms.algorithm import Algorithm
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    import numpy as np

    from rayfl.local.context import ClientContext
    from rayfl.local.queries import DataView


class SupportQuery(Algorithm):
    """An algorithm whose clients split their training samples in two; the base class of the meta-learning algorithms.

    Attributes:
        query_share: Share of a client's training samples in its query set, between 0 and 1, rounded; each of the two
            sets gets at least one sample.
        split: `client`: each client's samples are split once, the same in all phases. `round`: they are split anew in
            every round in which the client takes part. Both follow from the scenario's `seed`.

    Example:
        >>> import numpy as np
        >>> from rayfl.algorithms import Answer, Exchange, SupportQuery
        >>> from rayfl.local import Gradient
        >>> class FirstOrderMAML(SupportQuery):
        ...     def meta_gradient(self, client, model):
        ...         support, query = self.support_and_query(client)
        ...         adapted = model.clone()
        ...         adapted[: client.num_params] -= client.lr * (yield Gradient(model, support))
        ...         return Answer(gradient=(yield Gradient(adapted, query)))
        ...
        ...     def round(self, server, context):
        ...         answers = yield Exchange(self.meta_gradient, server.model, up=("params",))
        ...         server.apply_update(-0.01 * answers.mean("gradient"))
        >>> FirstOrderMAML(query_share=0.2).support_sizes(np.array([10, 2]))
        array([8, 1])
    """

    query_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    split: Literal["client", "round"] = "client"

    @property
    def parts(self) -> tuple[str, str]:
        """The names of support and query among a client's samples; empty if they are drawn anew every round."""
        return ("support", "query") if self.split == "client" else ("", "")

    def support_and_query(self, client: ClientContext) -> tuple[DataView, DataView]:
        """Returns a client's support and query views, fixed within a round; queries are not augmented."""
        streams = replace(client.streams, exchange=0)
        if self.split == "client":
            streams = replace(streams, phase=0, round=0)
        query, support = client.data.split(self.query_share, streams.numpy("support and query"))
        if self.split == "client":
            support, query = replace(support, part="support"), replace(query, part="query")
        return support, query.augmented(False)

    def support_sizes(self, sizes: np.ndarray) -> np.ndarray:
        """Returns the number of support samples of clients of these sizes.

        Args:
            sizes: int64 [clients], the number of training samples of each client.

        Returns:
            int64 [clients].
        """
        queries = (self.query_share * sizes).round().astype(sizes.dtype).clip(1, sizes - 1)
        support: np.ndarray = sizes - queries
        return support

    def check_clients(self, sizes: np.ndarray) -> None:
        if sizes.min() < 2:
            raise ScenarioError(
                f"client {int(sizes.argmin())} has {int(sizes.min())} training sample, too few for a support and a "
                "query set; hold fewer samples out, use fewer or other clients, or a partition with a minimum"
            )
