from __future__ import annotations

import tracemalloc
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from rayfl.algorithms.algorithm import Algorithm, Round
from rayfl.algorithms.exchange import Answer, Exchange
from rayfl.algorithms.server_state import RoundContext, ServerState
from rayfl.engine.events import RoundDone
from rayfl.engine.host import Host
from rayfl.engine.initial_model import flat_model
from rayfl.engine.plan.rounds import RoundIndex
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.server import Server
from rayfl.errors import RayflError, ScenarioError
from rayfl.local.context import ClientContext
from rayfl.models.tensors import split
from tests.engine.scenes import FEDERATED, PRETRAIN, TINY, cast, prepared, run_on_hosts


class Asking(Algorithm):
    """Yields `really` exchanges, and one more in the third round."""

    really: int
    longer: bool = False

    def round(self, server: ServerState, context: RoundContext) -> Round:
        for _ in range(self.really + (self.longer and context.round_in_phase == 3)):
            yield Exchange(self.ask, server.model)

    def ask(self, client: ClientContext, model: torch.Tensor) -> Answer:
        return Answer(1.0, same=model)


class Saying(Asking):
    exchanges: ClassVar[int] = 1


@pytest.mark.parametrize(("really", "said"), [(0, "only 0"), (2, "more")])
def test_a_round_with_another_number_of_exchanges_than_it_said_is_rejected(really: int, said: str) -> None:
    with pytest.raises(ScenarioError, match=rf"Saying: a round must yield 1 exchanges \(its `exchanges`\), .*{said}"):
        prepared(phases=[FEDERATED | {"algorithm": {"name": f"{__name__}:Saying", "really": really}}])


def asking(**options: Any) -> RunPlan:
    return prepared(phases=[FEDERATED | {"rounds": 4, "algorithm": {"name": f"{__name__}:Asking", **options}}])


def test_a_round_has_as_many_exchanges_as_it_yields() -> None:
    _, events = run_on_hosts(asking(really=2), 2)
    assert sum(isinstance(event, RoundDone) for event in events) == 4


def test_a_round_that_is_unlike_the_others_ends_the_run() -> None:
    with pytest.raises(RayflError, match=r"Asking: a round must yield 1 exchanges \(its `exchanges`\), .*only 0"):
        run_on_hosts(asking(really=0), 2)
    with pytest.raises(RayflError, match=r"Asking: a round must yield 1 exchanges \(its `exchanges`\), .*more"):
        run_on_hosts(asking(really=1, longer=True), 2)


class Writing(Asking):
    """Writes the number of the round into a bias, by the tensor's name."""

    really: int = 1
    tensor: str = "read_out.bias"

    def round(self, server: ServerState, context: RoundContext) -> Round:
        yield from super().round(server, context)
        server.tensor(self.tensor)[...] += context.round


def writing(**options: str) -> RunPlan:
    phase = {"cohort": 2, "algorithm": {"name": f"{__name__}:Writing"} | options}
    phases = [phase | {"name": "one", "rounds": 2}, phase | {"name": "two", "rounds": 1, "model": TWICE}]
    return prepared(**TINY, phases=phases)


TWICE = {"name": "tests.algorithms.scene:TanhNet", "dropout": 0.5}


def test_servers_find_tensors_by_name_in_every_phase() -> None:
    job = writing()
    vector, _ = run_on_hosts(job, 2)
    before, after = (
        flat_model(job.scenario, job.result).state_dict(torch.from_numpy(np.array(one)))
        for one in (job.result.initial.vector, vector)
    )
    assert torch.allclose(after["read_out.bias"], before["read_out.bias"] + 6)
    assert torch.equal(after["read_out.weight"], before["read_out.weight"])


def test_a_tensor_that_is_not_there_is_named() -> None:
    with pytest.raises(RayflError, match=r"the model has no tensor 'fc.bias'; it has 'first.bias', .* and 1 more"):
        run_on_hosts(writing(tensor="fc.bias"), 1)


@pytest.mark.parametrize("ahead", [0, 2])
def test_the_model_at_the_end_of_a_phase_can_be_had_long_after_it(ahead: int) -> None:
    """On Ray, who follows the run may hear of a round when later ones are committed."""
    phases = [PRETRAIN, FEDERATED, FEDERATED | {"name": "again", "rounds": 2}]
    scheduler, server = cast(prepared(**TINY, phases=phases), 2)
    scheduler._backend.rounds_ahead = ahead  # type: ignore[misc]
    models = {}
    for event in scheduler.run():
        if isinstance(event, RoundDone) and event.round in (3, 6, 8):
            models[event.round] = server.committed()[1], server.end_of_phase(event.round)
    for round, (committed, at_once) in models.items():
        for ended in (at_once, server.end_of_phase(round)):
            assert ended is not None
            assert np.array_equal(split(ended)[0], split(committed)[0])
    assert server.end_of_phase(5) is None


class Wide(torch.nn.Module):
    """200 000 parameters."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 40_000), torch.nn.Linear(40_000, num_classes, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(self.first(x))
        return logits


@pytest.mark.parametrize(("algorithm", "most"), [("fedavg", 17), ("fedexp", 33), ("fedavgm", 41)])
def test_a_step_takes_few_bytes_a_parameter(algorithm: str, most: float) -> None:
    """Besides what the hosts sent: two models, and the mean change in float64 with what the step adds."""
    phase = {"name": "p", "rounds": 3, "cohort": 4, "algorithm": algorithm}
    run = prepared(**TINY | {"model": f"{__name__}:Wide"}, phases=[phase])
    server, hosts, length = Server(run), [Host(index, run) for index in range(2)], len(run.initial_models[0].vector)
    tracemalloc.start()
    try:
        for number in (1, 2):
            round, used = RoundIndex(0, number, number), tracemalloc.get_traced_memory()[0]
            exchange = server.begin(round, range(4))
            parts = [host.answer(round, [[index]], exchange)[0] for index, host in enumerate(hosts)]
            del exchange
            begun = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            server.receive(round, None, *parts)
            more = tracemalloc.get_traced_memory()[1] - begun
            server.commit(round)
            del parts
    finally:
        tracemalloc.stop()
    assert (more + 2 * 4 * length) / length <= most
    assert begun - used < 30 * length  # nothing accumulates
