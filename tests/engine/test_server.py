from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest
import torch

from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.exchange import Answer, Answers, Exchange, ServerState
from rayfl.errors import RayflError
from rayfl.local.client import Client
from tests.engine.scenes import FEDERATED, prepared, run_on_hosts


class Asking(Algorithm):
    """Says that a round has one exchange, and yields `really`."""

    really: int

    def round(self, server: ServerState, cohort: Sequence[int]) -> Generator[Exchange, Answers, None]:
        for _ in range(self.really):
            yield Exchange(self.ask, server.model)

    def ask(self, client: Client, model: torch.Tensor) -> Answer:
        return Answer(1.0, same=model)


@pytest.mark.parametrize(("really", "said"), [(0, "only 0"), (2, "more")])
def test_a_round_with_another_number_of_exchanges_than_it_said_is_refused(really: int, said: str) -> None:
    job = prepared(phases=[FEDERATED | {"algorithm": {"name": f"{__name__}:Asking", "really": really}}])
    with pytest.raises(RayflError, match=rf"Asking: a round must yield 1 exchanges \(its `exchanges`\), .*{said}"):
        run_on_hosts(job, 2)
