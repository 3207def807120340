from __future__ import annotations

import pytest
import torch

from rayfl.algorithms.algorithm import Algorithm, Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.errors import RayflError
from rayfl.local.context import ClientContext
from tests.engine.scenes import FEDERATED, prepared, run_on_hosts


class Asking(Algorithm):
    """Says that a round has one exchange, and yields `really`."""

    really: int

    def round(self, server: ServerState, context: RoundContext) -> Round:
        for _ in range(self.really):
            yield Exchange(self.ask, server.model)

    def ask(self, client: ClientContext, model: torch.Tensor) -> Answer:
        return Answer(1.0, same=model)


@pytest.mark.parametrize(("really", "said"), [(0, "only 0"), (2, "more")])
def test_a_round_with_another_number_of_exchanges_than_it_said_is_refused(really: int, said: str) -> None:
    job = prepared(phases=[FEDERATED | {"algorithm": {"name": f"{__name__}:Asking", "really": really}}])
    with pytest.raises(RayflError, match=rf"Asking: a round must yield 1 exchanges \(its `exchanges`\), .*{said}"):
        run_on_hosts(job, 2)
