"""What is frozen stays as it was, to the last bit, and costs no gradient; afterwards everything can train again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.feddyn import FedDyn
from rayfl.algorithms.fedprox import FedProx
from rayfl.algorithms.moon import MOON
from rayfl.algorithms.scaffold import SCAFFOLD
from rayfl.config.phase import Local
from rayfl.data.batches import BatchSource
from rayfl.local.client import Client
from tests.algorithms.scene import EVERYTHING, PLAIN, TanhNet, prepared, trained
from tests.engine.scenes import run_on_hosts

State = dict[str, torch.Tensor]
VISITS: list[list[State]] = []
"""Of each visit, the parameters of the modules before every step."""


class Watching(FedAvg):
    """Keeps what the network holds before each step."""

    def local_update(self, client: Client, received: torch.Tensor) -> torch.Tensor:
        VISITS.append([])
        return super().local_update(client, received)

    def loss(self, client: Client, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        network = client.model.module
        VISITS[-1].append(
            {
                name: torch.cat([p.detach().flatten() for p in network.get_submodule(name).parameters()])
                for name in TanhNet.ordered_modules
            }
        )
        return super().loss(client, x, y)


class WatchingFedProx(Watching, FedProx): ...


class WatchingFedDyn(Watching, FedDyn): ...


class WatchingSCAFFOLD(Watching, SCAFFOLD): ...


class WatchingMOON(Watching, MOON): ...


@pytest.mark.parametrize("order", ["bottom_up", "top_down"])
@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "WatchingFedProx", "mu": 0.5},
        {"name": "WatchingFedDyn", "alpha": 0.2},
        {"name": "WatchingFedDyn", "alpha": 0.2, "penalty": "decay"},
        {"name": "WatchingSCAFFOLD", "correction": "gradient"},
        {"name": "WatchingSCAFFOLD", "correction": "step"},
        {"name": "WatchingMOON"},
    ],
    ids=lambda algorithm: "-".join(map(str, algorithm.values())),
)
def test_nothing_moves_what_is_frozen(algorithm: dict[str, Any], order: str) -> None:
    """With weight decay, momentum and clipping; clients come back, so that penalties have what to remember."""
    VISITS.clear()
    setting = EVERYTHING.with_local(batch_size="full", epochs=6, unfreeze={"share": 1.0, "order": order})
    trained(algorithm | {"name": f"{__name__}:{algorithm['name']}"}, setting)
    modules = TanhNet.ordered_modules if order == "bottom_up" else TanhNet.ordered_modules[::-1]
    assert len(VISITS) == 12
    for steps in VISITS:
        assert len(steps) == 6
        for unit, name in enumerate(modules):
            thaws = 2 * unit
            for step in range(1, thaws + 1):
                assert torch.equal(steps[step][name], steps[0][name])
            for step in range(thaws + 1, 6):
                assert not torch.equal(steps[step][name], steps[step - 1][name])


COMPUTED: Counter[tuple[str, str]] = Counter()


class CountingLinear(torch.autograd.Function):
    """A dense layer that counts how often backward reaches it, and what it is asked for."""

    @staticmethod
    def forward(ctx: Any, name: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.name = name
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (gradient,), (x, weight) = gradients, ctx.saved_tensors
        _, wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        COMPUTED.update({(ctx.name, "input"): int(wants_x), (ctx.name, "weight"): int(wants_weight)})
        COMPUTED.update({(ctx.name, "bias"): int(wants_bias), (ctx.name, "reached"): 1})
        return (
            None,
            gradient @ weight if wants_x else None,
            gradient.T @ x if wants_weight else None,
            gradient.sum(dim=0) if wants_bias else None,
        )


class CountingNet(TanhNet):
    """TanhNet, whose layers count."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for name in self.ordered_modules:
            layer = self.get_submodule(name)
            x = CountingLinear.apply(name, x, layer.weight, layer.bias)
            x = x if name == "read_out" else torch.tanh(x)
        return x


@pytest.mark.parametrize(
    ("local", "weights", "inputs", "reached"),
    [
        ({"unfreeze": {"share": 1.0}}, [6, 4, 2], [0, 6, 6], [6, 6, 6]),
        ({"unfreeze": {"share": 1.0, "order": "top_down"}}, [2, 4, 6], [0, 2, 4], [2, 4, 6]),
        ({"fixed_last": 1}, [6, 6, 0], [0, 6, 6], [6, 6, 6]),
        ({"fixed_last": 2}, [6, 0, 0], [0, 6, 6], [6, 6, 6]),
        ({}, [6, 6, 6], [0, 6, 6], [6, 6, 6]),
    ],
    ids=["bottom_up", "top_down", "fixed_1", "fixed_2", "nothing"],
)
def test_only_gradients_that_are_needed_are_computed(
    local: dict[str, Any], weights: list[int], inputs: list[int], reached: list[int]
) -> None:
    """In six steps. Backward ends at the first module, from the input, that trains: above it, inputs need gradients."""
    COMPUTED.clear()
    setting = PLAIN.with_local(batch_size="full", epochs=6, **local)
    job, _ = prepared(
        "fedavg",
        setting,
        model=f"{__name__}:CountingNet",
        phases=[{"name": "p", "rounds": 1, "cohort": {"given": [[3]]}, "local": dict(setting.local)}],
    )
    run_on_hosts(job, 1)
    for what, expected in (("weight", weights), ("bias", weights), ("input", inputs), ("reached", reached)):
        assert [COMPUTED[name, what] for name in TanhNet.ordered_modules] == expected


class Failing(FedAvg):
    """Its third step raises."""

    def loss(self, client: Client, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        client.scratch["steps"] = client.scratch.get("steps", torch.zeros(())) + 1
        if client.scratch["steps"] == 3:
            raise RuntimeError("out of paper")
        return super().loss(client, x, y)


@pytest.mark.parametrize("algorithm", [FedAvg(), Failing()], ids=["well", "error"])
@pytest.mark.parametrize("order", ["bottom_up", "top_down"])
@pytest.mark.parametrize("fixed_last", [0, 1])
def test_after_a_visit_everything_requires_gradients_again(algorithm: FedAvg, order: str, fixed_last: int) -> None:
    job, model = prepared("fedavg", PLAIN)
    local = Local.model_validate({"batch_size": 4, "unfreeze": {"share": 1.0, "order": order}, "epochs": 3})
    source = BatchSource(job.store, torch.device("cpu"))
    client = Client(3, source, model, local, lr=0.1, seed=0, phase=0, round=1, state={})
    if isinstance(algorithm, Failing):
        with pytest.raises(RuntimeError, match="out of paper"):
            client.train(model.vector.clone(), algorithm, fixed_last)
    else:
        client.train(model.vector.clone(), algorithm, fixed_last)
    assert all(parameter.requires_grad for parameter in model.module.parameters())
    model.check()
