"""Algorithms that compute their own gradients: the example FedSAM, and what a step offers and rejects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rayfl.algorithms import Answer, Exchange, FedAvg
from rayfl.algorithms.algorithm import Algorithm, Round
from rayfl.algorithms.limits import SampleRequest
from rayfl.errors import RayflError, ScenarioError
from rayfl.local.batches import TrainingBatch, TrainingStep
from rayfl.local.requests import LocalTraining
from rayfl.local.state import Declaration
from rayfl.models.flat import FlatModel
from rayfl.tasks.supervised import Classification
from tests.algorithms.reference import (
    Vector,
    assert_equal_and_unlike,
    cross_entropy,
    fedavg,
    gradient,
    mean,
    rounds,
    sizes,
)
from tests.algorithms.scene import EVERYTHING, LOUD, PLAIN, Setting, prepared, trained
from tests.engine.scenes import run_on_hosts

EXAMPLES = Path(__file__).parents[2] / "examples"
RHO = 0.1


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def plain_fedsam(setting: Setting) -> Vector:
    """float64: every gradient is that of SAM, which no code of rayfl's computes."""
    w = setting.initial()
    for cohort in rounds(setting):
        changes = []
        for update in cohort:

            def at_the_worst(y: Vector, xs: torch.Tensor, ys: torch.Tensor) -> torch.Tensor:
                with torch.enable_grad():
                    slope = gradient(_loss(setting), y, xs, ys)
                return _loss(setting)(y + RHO * slope / slope.norm(), xs, ys)

            changes.append(update.sgd(w, at_the_worst) - w)
        w = w + mean(changes, sizes(cohort))
    return w


def _loss(setting: Setting) -> Callable[..., torch.Tensor]:
    return lambda w, x, y: cross_entropy(w, x, y, setting.loudness)


@pytest.mark.parametrize("setting", [EVERYTHING, LOUD], ids=["momentum, decay, clipping", "loud"])
def test_fedsam_takes_the_gradient_at_the_worst_point_nearby(setting: Setting) -> None:
    ours = trained({"name": "fedsam:FedSAM", "rho": RHO}, setting)
    assert_equal_and_unlike(ours, plain_fedsam(setting), fedavg(setting), setting)


class OwnButPlain(FedAvg):
    """Returns the gradient that the step would take anyway."""

    def step_gradient(self, client: Any, step: TrainingStep) -> torch.Tensor:
        assert step.number < client.steps
        found = step.gradient()
        step.gradient(at=step.params + 1.0)  # of which nothing must stay behind
        return found


@pytest.mark.parametrize(
    ("local", "penalty"),
    [  # each option, and each penalty where batches come whole and in parts
        ({}, "contrastive"),
        ({"accumulate": 2, "batch_size": 3}, "proximal"),
        ({"accumulate": 2, "batch_size": 3}, "contrastive"),
        ({"sample_weights": "inverse_frequency"}, "contrastive"),
        ({"unfreeze": {"share": 0.5}, "momentum": 0.9, "weight_decay": 0.1}, "proximal"),
        ({"optimizer": "adamw", "lr": 0.01}, "none"),
        ({"module_lr": {"first": 0.05}}, "proximal"),
    ],
)
def test_the_steps_own_gradient_gives_fedavgs_bits_whatever_local_says(local: dict[str, Any], penalty: str) -> None:
    setting = PLAIN.with_local(**local)
    penalties = [] if penalty == "none" else [{"name": penalty}]
    names = ("fedavg", f"{__name__}:OwnButPlain")
    ours, usual = (trained({"name": name, "penalties": penalties}, setting) for name in names)
    if penalty == "contrastive" and "accumulate" in local:  # features under other models come in other batches
        assert torch.allclose(ours, usual, atol=1e-6)
    else:
        assert torch.equal(ours, usual)


@pytest.mark.parametrize("train", ["head", ["second"]])
def test_frozen_parameters_have_no_gradient_and_do_not_move(train: Any) -> None:
    names = ("fedavg", f"{__name__}:Everywhere")
    ours = [trained(name, PLAIN.with_local(clip_norm=0.1), train=train) for name in names]
    assert torch.equal(*ours)


class Everywhere(FedAvg):
    """Would move all parameters; its vector differs from the gradient where nothing trains."""

    def step_gradient(self, client: Any, step: TrainingStep) -> torch.Tensor:
        found = step.gradient()
        return found + 100.0 * (found == 0)


class Wrong(FedAvg):
    what: str = "short"

    def step_gradient(self, client: Any, step: TrainingStep) -> Any:
        match self.what:
            case "short":
                return step.gradient()[:-1]
            case "nothing":
                return None
            case _:
                return step.gradient(at=step.gradient().reshape(1, -1))


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("short", r"the result of step_gradient must be a vector of the \d+ parameters"),
        ("nothing", r"the result of step_gradient must be a vector .* not None"),
        ("at", r"at must be a vector of the \d+ parameters, like step.gradient\(\) and step.params, not \[1, "),
    ],
)
def test_a_gradient_of_another_shape_is_rejected(what: str, complaint: str) -> None:
    with pytest.raises(RayflError, match=complaint):
        trained({"name": f"{__name__}:Wrong", "what": what}, PLAIN)


class NormNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.last(torch.relu(self.norm(self.first(x))))
        return logits


def test_statistics_are_of_the_steps_own_parameters() -> None:
    """As plain PyTorch has them, though the gradient elsewhere is computed between two of its own."""
    model, plain = FlatModel(NormNet(), torch.device("cpu")), NormNet()
    plain.load_state_dict(model.state_dict())
    x, y = torch.randn(8, 4), torch.arange(8) % 3

    def backward() -> torch.Tensor:
        loss = F.cross_entropy(model.module(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    step = TrainingStep(model, 0, backward)
    step.gradient()
    away = step.gradient(at=step.params * 2)
    step.gradient()
    plain(x)
    plain(x)
    for name, value in plain.state_dict().items():
        assert torch.equal(model.module.state_dict()[name], value), name
    doubled = NormNet()
    doubled.load_state_dict(plain.state_dict())
    with torch.no_grad():
        for parameter in doubled.parameters():
            parameter.mul_(2)
    F.cross_entropy(doubled(x), y).backward()  # type: ignore[no-untyped-call]
    for slot in model.layout:
        if slot.is_parameter:
            assert torch.allclose(slot.view(away), doubled.get_parameter(slot.name).grad, atol=1e-6)  # type: ignore[arg-type]
    assert len(step.losses) == 3


class ByRequest(Algorithm):
    """Asks for it without FedAvg's help."""

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return (SampleRequest(),)

    def round(self, server: Any, context: Any) -> Round:
        answers = yield Exchange(self.client_update, server.model)
        server.apply_update(answers.mean("delta")[: server.num_params])

    def client_update(self, client: Any, model: torch.Tensor) -> Any:
        trained = yield LocalTraining(model, step_gradient=lambda step: step.gradient())
        return Answer(client.num_samples, delta=trained - model)


def test_with_example_level_dp_a_request_with_its_own_gradient_is_rejected() -> None:
    assert torch.equal(trained(f"{__name__}:ByRequest", PLAIN), trained("fedavg", PLAIN))
    dp = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "accountant": "rdp"}
    with pytest.raises(RayflError, match=r"client \d+ .*local.dp: its client update computes its own gradients"):
        trained(f"{__name__}:ByRequest", PLAIN.with_local(dp=dp))


class Counting(Classification):
    """Keeps how many batches it has seen."""

    def objective(self, batch: TrainingBatch) -> torch.Tensor:
        batch.client.state["seen"] = batch.client.state.get("seen", torch.zeros(1)) + 1
        return super().objective(batch)

    def client_state(self) -> Declaration:
        return {"seen": "phase"}


def test_a_task_that_keeps_something_between_batches_is_rejected() -> None:
    job, _ = prepared(f"{__name__}:ByRequest", PLAIN, task={"name": f"{__name__}:Counting"})
    with pytest.raises(RayflError, match=r"task '.*Counting' keeps something from one batch to the next"):
        run_on_hosts(job, 1)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"epochs": 0}, r"LocalTraining.epochs: must be a whole number of at least 1, not 0"),
        ({"steps": 1.5}, r"LocalTraining.steps: must be a whole number of at least 1, not 1.5"),
        ({"epochs": 1, "steps": 1}, r"'epochs' and 'steps' both set the length of training; leave one out"),
    ],
)
def test_how_long_a_request_trains_is_checked(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        LocalTraining(torch.zeros(1), **options)


class Longer(FedAvg):
    """Takes so many steps, whatever `local` says."""

    many: int = 5

    def client_update(self, client: Any, model: torch.Tensor) -> Any:
        trained = yield from self.train(client, model, steps=self.many)
        return Answer(client.num_samples, delta=trained - model)


def test_steps_of_a_request_take_as_many_passes_as_they_need() -> None:
    ours = trained({"name": f"{__name__}:Longer", "many": 7}, PLAIN)
    assert torch.equal(ours, trained("fedavg", PLAIN.with_local(epochs=7, steps=7)))
