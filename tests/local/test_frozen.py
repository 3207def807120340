"""What is frozen stays as it was, to the last bit, and costs no gradient; afterwards everything can train again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from rayfl.config.local import Train
from rayfl.errors import ClientError
from rayfl.local.batches import TrainingBatch
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate, LocalTraining
from tests.algorithms.scene import EVERYTHING, PLAIN, TanhNet, prepared
from tests.engine.scenes import run_on_hosts
from tests.local.bench import shared_bench

State = dict[str, torch.Tensor]
STEPS: list[State] = []
"""The parameters of the modules before every step of all client updates."""


class WatchedNet(TanhNet):
    """TanhNet, which keeps what it holds before each step."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            STEPS.append(
                {
                    name: torch.cat([p.detach().flatten() for p in self.get_submodule(name).parameters()])
                    for name in self.ordered_modules
                }
            )
        return super().forward(x)


@pytest.mark.parametrize("order", ["bottom_up", "top_down"])
@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedprox", "mu": 0.5},
        {"name": "feddyn", "alpha": 0.2},
        {"name": "feddyn", "alpha": 0.2, "penalty": "decay"},
        {"name": "scaffold", "correction": "gradient"},
        {"name": "scaffold", "correction": "step"},
        {"name": "moon"},
    ],
    ids=lambda algorithm: "-".join(map(str, algorithm.values())),
)
def test_nothing_moves_what_is_frozen(algorithm: dict[str, Any], order: str) -> None:
    """With weight decay, momentum and clipping; clients come back, so that penalties have what to remember."""
    setting = EVERYTHING.with_local(batch_size="full", epochs=6, unfreeze={"share": 1.0, "order": order})
    job, _ = prepared(algorithm, setting, model=f"{__name__}:WatchedNet")
    STEPS.clear()  # of the trial before the run
    run_on_hosts(job, 1)
    modules = TanhNet.ordered_modules if order == "bottom_up" else TanhNet.ordered_modules[::-1]
    assert len(STEPS) == 6 * sum(map(len, setting.cohorts))
    for start in range(0, len(STEPS), 6):
        steps = STEPS[start : start + 6]
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
    ("train", "local", "weights", "inputs", "reached"),
    [
        ("all", {"unfreeze": {"share": 1.0}}, [6, 4, 2], [0, 6, 6], [6, 6, 6]),
        ("all", {"unfreeze": {"share": 1.0, "order": "top_down"}}, [2, 4, 6], [0, 2, 4], [2, 4, 6]),
        ("body", {}, [6, 6, 0], [0, 6, 6], [6, 6, 6]),
        (["first"], {}, [6, 0, 0], [0, 6, 6], [6, 6, 6]),
        ("head", {}, [0, 0, 6], [0, 0, 0], [0, 0, 6]),
        (["first", "read_out"], {}, [6, 0, 6], [0, 6, 6], [6, 6, 6]),
        ("all", {}, [6, 6, 6], [0, 6, 6], [6, 6, 6]),
    ],
    ids=["bottom_up", "top_down", "body", "first", "head", "both_ends", "nothing"],
)
def test_only_gradients_that_are_needed_are_computed(
    train: Any, local: dict[str, Any], weights: list[int], inputs: list[int], reached: list[int]
) -> None:
    """In six steps. Backward ends at the first module, from the input, that trains: above it, inputs need gradients."""
    setting = PLAIN.with_local(batch_size="full", epochs=6, **local)
    job, _ = prepared(
        "fedavg",
        setting,
        model=f"{__name__}:CountingNet",
        phases=[
            {"name": "p", "rounds": 1, "cohort": {"explicit": [[3]]}, "local": dict(setting.local), "train": train}
        ],
    )
    COMPUTED.clear()  # of the trial before the run
    run_on_hosts(job, 1)
    for what, expected in (("weight", weights), ("bias", weights), ("input", inputs), ("reached", reached)):
        assert [COMPUTED[name, what] for name in TanhNet.ordered_modules] == expected


@pytest.mark.parametrize("fails", [False, True], ids=["well", "error"])
@pytest.mark.parametrize("order", ["bottom_up", "top_down"])
@pytest.mark.parametrize("train", ["all", "body"])
def test_after_a_client_update_everything_requires_gradients_again(fails: bool, order: str, train: Train) -> None:
    steps = 0

    def third_step_fails(batch: TrainingBatch) -> torch.Tensor:
        nonlocal steps
        steps += 1
        if fails and steps == 3:
            raise RuntimeError("out of paper")
        return batch.outputs.new_zeros(())

    def update(client: ClientContext) -> ClientUpdate[torch.Tensor]:
        trained: torch.Tensor = yield LocalTraining(bench.initial, terms=(third_step_fails,))
        return trained

    bench = shared_bench()
    client = bench.client(3, {"batch_size": 4, "unfreeze": {"share": 1.0, "order": order}, "epochs": 3}, train=(train,))
    if fails:
        with pytest.raises(ClientError, match="out of paper"):
            bench.run(client, update)
    else:
        bench.run(client, update)
    assert all(parameter.requires_grad for parameter in bench.model.module.parameters())
    bench.model.check()
