"""Optimizers of torch.optim in a client's update, against the same optimizers on an ordinary module in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler

from rayfl.config.local import Train
from rayfl.local.context import ClientContext
from rayfl.local.requests import Affine, ClientUpdate, LocalTraining
from rayfl.models.flat import FlatModel
from rayfl.streams import torch_seed
from tests.algorithms.reference import PlainUpdate, Vector
from tests.algorithms.scene import CLASSES, FIRST, INPUTS, SECOND, SEED, Setting, TanhNet
from tests.local.bench import Bench

CLIENT = 4
"""Sixteen samples: eight steps in two epochs."""
USUAL: dict[str, Any] = {"epochs": 2, "batch_size": 4}
LR = 0.05
AFFINE = ("gradient", "after_step")

Make = Callable[[list[torch.nn.Parameter]], list[Optimizer]]


class Lion(Optimizer):
    """Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, without the cap on tensors of one element."""

    def __init__(self, params: Iterable[torch.Tensor], lr: float, weight_decay: float = 0.0, beta: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "beta": beta})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                    momentum.mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                    # by the norm of the whole tensor, so that shapes matter
                    p.data.mul_(1 - group["lr"] * group["weight_decay"])
                    p.data.sub_(momentum / (momentum.norm() + 1e-3), alpha=group["lr"])


class SpareHead(TanhNet):
    """TanhNet with the head of another task, which no loss reaches."""

    ordered_modules = (*TanhNet.ordered_modules, "spare")
    groupings = {}  # noqa: RUF012

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.spare = torch.nn.Linear(SECOND, num_classes)


class EitherHead(SpareHead):
    """A batch goes to one of the heads; its first number decides which."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        head = self.spare if x[0, 0] > 0 else self.read_out
        logits: torch.Tensor = head(torch.tanh(self.second(torch.tanh(self.first(x)))))
        return logits


class SilentHead(SpareHead):
    """The loss reaches the spare head, with a gradient of zero."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = torch.tanh(self.second(torch.tanh(self.first(x))))
        logits: torch.Tensor = self.read_out(features) + 0 * self.spare(features)
        return logits


class FixedFirst(TanhNet):
    """Its first layer takes no gradient, once the network has been put in a mode."""

    def train(self, mode: bool = True) -> FixedFirst:
        self.first.requires_grad_(False)
        return super().train(mode)


@cache
def bench_of(network: str) -> Bench:
    """One for all tests of a network: each client update starts from the vector that it is given."""
    return Bench(model=f"{__name__}:{network}")


def begun(network: type[TanhNet]) -> TanhNet:
    """What training starts from, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(torch_seed(SEED, "initial"))
        return network(CLASSES).double()


def flat(model: FlatModel, vector: torch.Tensor) -> Vector:
    return torch.cat([part.flatten() for part in model.state_dict(vector).values()]).double()


def ours(
    local: Mapping[str, Any], train: Train = "all", network: type[TanhNet] = TanhNet, **request: Any
) -> tuple[Vector, list[float]]:
    """The trained parameters without padding, and the losses."""
    bench = bench_of(network.__name__)
    client = bench.client(CLIENT, USUAL | dict(local), lr=LR, train=(train,))

    def update(client: ClientContext) -> ClientUpdate[torch.Tensor]:
        terms = {key: tuple(_padded(bench.model, term) for term in request.get(key, ())) for key in AFFINE}
        trained: torch.Tensor = yield LocalTraining(bench.initial, **{**request, **terms})
        return trained

    trained = bench.run(client, update)
    padding = torch.ones_like(trained)
    for slot in bench.model.layout:
        slot.view(padding).zero_()
    assert not trained[padding.bool()].any()
    return flat(bench.model, trained), list(client.losses)


def _padded(model: FlatModel, term: Affine) -> Affine:
    if term.linear is None:
        return term
    vector, left = torch.zeros_like(model.params), term.linear
    for slot in model.layout:
        slot.view(vector).copy_(left[: slot.size].view(slot.shape))
        left = left[slot.size :]
    return Affine(vector, term.quadratic, term.centre)


def theirs(
    make: Make,
    local: Mapping[str, Any] = USUAL,
    *,
    schedule: Callable[[Optimizer, int], LRScheduler] | None = None,
    before: Callable[[torch.nn.Module], None] = lambda net: None,
    after: Callable[[torch.nn.Module, float], None] = lambda net, lr: None,
    trains: Callable[[int, int, str], bool] = lambda step, steps, name: True,
    network: type[TanhNet] = TanhNet,
    accumulate: int = 1,
) -> tuple[Vector, list[float]]:
    """A plain loop over a plain module.

    before: called with the gradients, before the optimizer's step. after: after it, with its rate. trains: whether the
    parameter of a name trains at a step, from 1, of so many.
    """
    setting = Setting(local=dict(local) | {"lr": LR})
    update, net = PlainUpdate(setting, CLIENT, 1), begun(network)
    steps = update.K // accumulate
    optimizers = make(list(net.parameters()))
    schedules = [schedule(optimizer, steps) for optimizer in optimizers] if schedule else []
    losses = []
    for step in range(1, steps + 1):
        batches = update.batches[(step - 1) * accumulate : step * accumulate]
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(trains(step, steps, name))
            parameter.grad = None
        net.train()
        of_batches = [F.cross_entropy(net(update.x[rows]), update.y[rows]) / accumulate for rows in batches]
        loss = torch.stack(of_batches).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        before(net)
        lr = optimizers[0].param_groups[0]["lr"]
        for optimizer in optimizers:
            optimizer.step()
        with torch.no_grad():
            after(net, lr)
        for scheduler in schedules:
            scheduler.step()
        losses.append(loss.item())
    return torch.nn.utils.parameters_to_vector(net.parameters()).detach(), losses


def assert_same(
    ours: tuple[Vector, list[float]],
    theirs: tuple[Vector, list[float]],
    tolerance: float = 2e-4,
    network: type[TanhNet] = TanhNet,
) -> None:
    """Relative to how far training went: Adam divides small gradients by their size, rounding errors included."""
    change = (theirs[0] - torch.nn.utils.parameters_to_vector(begun(network).parameters())).norm()
    assert change > 0.05
    assert (ours[0] - theirs[0]).norm() / change < tolerance
    assert ours[1] == pytest.approx(theirs[1], rel=1e-4)


def one(kind: Callable[..., Optimizer], **options: Any) -> Make:
    return lambda parameters: [kind(parameters, lr=LR, **options)]


def muon_and(kind: Callable[..., Optimizer], decay: float = 0.0, **options: Any) -> Make:
    def make(parameters: list[torch.nn.Parameter]) -> list[Optimizer]:
        matrices = [parameter for parameter in parameters if parameter.ndim == 2]
        others = [parameter for parameter in parameters if parameter.ndim != 2]
        muon = torch.optim.Muon(matrices, lr=LR, weight_decay=decay, ns_steps=3)
        return [muon, kind(others, lr=LR, weight_decay=decay, **options)]

    return make


WAYS: dict[str, tuple[dict[str, Any], Make]] = {
    "adadelta": ({"optimizer": {"name": "adadelta", "eps": 0.01}}, one(torch.optim.Adadelta, eps=0.01)),
    "adagrad": ({"optimizer": "adagrad"}, one(torch.optim.Adagrad)),
    "adam": ({"optimizer": "adam", "weight_decay": 0.1}, one(torch.optim.Adam, weight_decay=0.1)),
    "adamax": ({"optimizer": "adamax"}, one(torch.optim.Adamax)),
    "adamw": (
        {"optimizer": {"name": "adamw", "betas": [0.8, 0.9]}, "weight_decay": 0.2},
        one(torch.optim.AdamW, betas=(0.8, 0.9), weight_decay=0.2),
    ),
    "adamw_without_decay": ({"optimizer": "adamw"}, one(torch.optim.AdamW, weight_decay=0.0)),
    "asgd": ({"optimizer": {"name": "asgd", "lambd": 0.1}}, one(torch.optim.ASGD, lambd=0.1)),
    "nadam": ({"optimizer": "nadam"}, one(torch.optim.NAdam)),
    "radam": ({"optimizer": "radam"}, one(torch.optim.RAdam)),
    "rmsprop": (
        {"optimizer": {"name": "rmsprop", "momentum": 0.5, "centered": True}},
        one(torch.optim.RMSprop, momentum=0.5, centered=True),
    ),
    "rprop": ({"optimizer": "rprop"}, one(torch.optim.Rprop)),
    "nesterov": (
        {"optimizer": {"name": "sgd", "nesterov": True}, "momentum": 0.9, "weight_decay": 0.01},
        one(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.01),
    ),
    "adafactor": (
        {"optimizer": {"name": "adafactor", "d": 1.5}, "weight_decay": 0.1},
        one(torch.optim.Adafactor, d=1.5, weight_decay=0.1),
    ),
    "own": (
        {"optimizer": {"name": f"{__name__}:Lion", "beta": 0.7}, "weight_decay": 0.1},
        one(Lion, beta=0.7, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize(("local", "make"), WAYS.values(), ids=WAYS.keys())
def test_a_client_update_is_that_of_the_plain_optimizer(local: dict[str, Any], make: Make) -> None:
    assert_same(ours(local), theirs(make))


@pytest.mark.parametrize(
    ("others", "kind", "options"),
    [(None, torch.optim.AdamW, {}), ({"name": "sgd", "nesterov": False}, torch.optim.SGD, {})],
    ids=["adamw", "sgd"],
)
def test_muon_takes_matrices_and_another_optimizer_the_rest(others: Any, kind: Any, options: dict[str, Any]) -> None:
    """Muon orthogonalises in bfloat16, whatever the precision of the rest."""
    muon = {"name": "muon", "ns_steps": 3} | ({"others": others} if others else {})
    found = ours({"optimizer": muon, "weight_decay": 0.1})
    assert_same(found, theirs(muon_and(kind, 0.1, **options)), tolerance=2e-2)
    away = (found[0] - ours({"optimizer": "adamw", "weight_decay": 0.1})[0]).norm()
    assert away > 0.2


@pytest.mark.parametrize(
    ("given", "schedule"),
    [
        ("cosine", CosineAnnealingLR),
        ({"name": "cosine", "final": 0.2}, lambda optimizer, steps: CosineAnnealingLR(optimizer, steps, 0.2 * LR)),
        ({"name": "linear", "final": 0.1}, lambda optimizer, steps: LinearLR(optimizer, 1.0, 0.1, steps)),
        ({"warmup": 3}, lambda optimizer, steps: LinearLR(optimizer, 0.25, 1.0, 3)),
        ({"warmup": 0.375}, lambda optimizer, steps: LinearLR(optimizer, 0.25, 1.0, 3)),
    ],
    ids=["cosine", "cosine_to_0.2", "linear", "warmup", "warmup_share"],
)
@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_schedule_within_the_update_is_pytorchs(name: str, given: Any, schedule: Any) -> None:
    momentum = {"momentum": 0.5}
    local, make = WAYS[name] if name != "sgd" else (momentum, one(torch.optim.SGD, **momentum))
    found = ours(local | {"lr_schedule": given})
    assert_same(found, theirs(make, schedule=schedule))
    assert (found[0] - ours(local)[0]).norm() > 0.01


@pytest.mark.parametrize("name", ["adamw", "adafactor", "nesterov", "own"])
def test_an_algorithms_terms_compose_with_any_optimizer(name: str) -> None:
    """Terms of the gradient come before clipping, the algorithm's decay after it, and `after_step` after the step."""
    rng = torch.Generator().manual_seed(5)
    size = sum(parameter.numel() for parameter in TanhNet(CLASSES).parameters())
    pull, push = (0.1 * torch.randn(size, generator=rng) for _ in range(2))

    def before(net: torch.nn.Module) -> None:
        left = pull.double()
        for p in net.parameters():
            assert p.grad is not None
            p.grad.add_(left[: p.numel()].view_as(p) + 0.3 * p.detach()).clamp_(-0.2, 0.2)
            left = left[p.numel() :]
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        for p in net.parameters():
            assert p.grad is not None
            p.grad.add_(p.detach(), alpha=0.05)

    def after(net: torch.nn.Module, lr: float) -> None:
        left = push.double()
        for p in net.parameters():
            p.sub_(left[: p.numel()].view_as(p), alpha=lr)
            left = left[p.numel() :]

    local, make = WAYS[name]
    found = ours(
        local | {"clip_value": 0.2, "clip_norm": 0.5, "lr_schedule": "cosine"},
        gradient=(Affine(pull, 0.3),),
        after_step=(Affine(push),),
        weight_decay=0.05,
    )
    assert_same(found, theirs(make, schedule=CosineAnnealingLR, before=before, after=after))


MOMENTUM_AND_DECAY = {"momentum": 0.9, "weight_decay": 0.1}
SKIPPING = WAYS | {
    "sgd": (MOMENTUM_AND_DECAY, one(torch.optim.SGD, **MOMENTUM_AND_DECAY)),
    "muon": (
        {"optimizer": {"name": "muon", "ns_steps": 3}, "weight_decay": 0.1},
        muon_and(torch.optim.AdamW, 0.1),
    ),
}
UNITS = [name[:5] for name in SpareHead.ordered_modules]


def spare_of(vector: Vector) -> Vector:
    return vector[-(SECOND + 1) * CLASSES :]


def start_of(network: type[TanhNet]) -> Vector:
    return torch.nn.utils.parameters_to_vector(begun(network).parameters()).detach()


@pytest.mark.parametrize(
    ("name", "network"),
    [
        *((name, EitherHead) for name in SKIPPING),
        # Plain, with moments, with two optimizers, and a user's own: which parameters are skipped does not change.
        *((name, network) for name in ("sgd", "adamw", "muon", "own") for network in (SpareHead, FixedFirst)),
    ],
)
def test_what_no_loss_of_a_step_reaches_is_skipped_as_in_pytorch(name: str, network: type[TanhNet]) -> None:
    """With its momentum, its moments and its decay: in all steps, or in some."""
    (local, make), tolerance = SKIPPING[name], {"muon": 2e-2, "sgd": 1e-5}.get(name, 2e-4)
    found, start = ours(local, network=network), start_of(network)
    assert_same(found, theirs(make, network=network), tolerance, network)
    assert torch.equal(spare_of(found[0]), spare_of(start)) == (network is SpareHead)
    first = slice(0, FIRST * (INPUTS + 1))
    assert torch.equal(found[0][first], start[first]) == (network is FixedFirst)


@pytest.mark.parametrize("name", ["sgd", "adamw", "own"])
def test_a_gradient_of_zero_is_a_gradient(name: str) -> None:
    local, make = SKIPPING[name]
    found = ours(local, network=SilentHead)
    assert_same(found, theirs(make, network=SilentHead), network=SilentHead)
    assert (spare_of(found[0]) != spare_of(start_of(SilentHead))).all()


@pytest.mark.parametrize("name", ["sgd", "adamw", "own"])
def test_what_is_not_reached_is_skipped_with_every_option_of_the_update(name: str) -> None:
    def clipped(net: torch.nn.Module) -> None:
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.3)

    local, make = SKIPPING[name]
    two = theirs(make, network=EitherHead, accumulate=2, before=clipped, schedule=CosineAnnealingLR)
    given = {"accumulate": 2, "clip_norm": 0.3, "lr_schedule": "cosine"}
    assert_same(ours(local | given, network=EitherHead), two, network=EitherHead)
    thawing = theirs(make, network=EitherHead, trains=lambda step, steps, name: step > 2 * UNITS.index(name[:5]))
    assert_same(ours(local | {"unfreeze": {"share": 1.0}}, network=EitherHead), thawing, network=EitherHead)
    of_spare = ours(local | {"module_lr": {"spare": 0.3}}, network=SpareHead)
    assert_same(of_spare, theirs(make, network=SpareHead), network=SpareHead)
    body = ours(local, network=FixedFirst, train="body")
    assert_same(body, theirs(make, network=FixedFirst, trains=lambda _, __, name: "second" in name), network=FixedFirst)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
@pytest.mark.parametrize("place", ["gradient", "after_step", "weight_decay"])
def test_an_algorithm_that_adds_to_gradients_or_steps_moves_what_no_loss_reaches(name: str, place: str) -> None:
    push = 0.1 * torch.ones(len(start_of(SpareHead)))

    def before(net: torch.nn.Module) -> None:
        for p in net.parameters():
            grad = torch.zeros_like(p) if p.grad is None else p.grad
            p.grad = grad + {"gradient": 0.1 + 0.3 * p.detach(), "weight_decay": 0.2 * p.detach()}.get(place, 0.0)

    def after(net: torch.nn.Module, lr: float) -> None:
        for p in net.parameters():
            p.sub_(lr * (0.1 + 0.3 * p) if place == "after_step" else 0.0)

    local, make = SKIPPING[name]
    request: Any = {place: 0.2 if place == "weight_decay" else (Affine(push, 0.3),)}
    expected = theirs(make, network=SpareHead, before=before, after=after)
    assert_same(ours(local, network=SpareHead, **request), expected, network=SpareHead)


def test_a_term_of_weight_zero_moves_nothing() -> None:
    local, make = SKIPPING["sgd"]
    found = ours(local, network=SpareHead, gradient=(Affine(quadratic=0.0),), after_step=(Affine(),))
    assert_same(found, theirs(make, network=SpareHead), network=SpareHead)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_gradient_of_the_algorithms_own_reaches_what_it_differentiates_and_what_it_fills(name: str) -> None:
    local, make = SKIPPING[name]
    skipped = ours(local, network=SpareHead, step_gradient=lambda step: step.gradient(at=step.params))
    assert_same(skipped, theirs(make, network=SpareHead), network=SpareHead)

    def filled(net: torch.nn.Module) -> None:
        for p in net.parameters():
            p.grad = (torch.zeros_like(p) if p.grad is None else p.grad) + 0.3 * p.detach()

    proximal = ours(local, network=SpareHead, step_gradient=lambda step: step.gradient() + 0.3 * step.params)
    assert_same(proximal, theirs(make, network=SpareHead, before=filled), network=SpareHead)
    of_nothing = ours(local, network=SpareHead, step_gradient=lambda step: torch.zeros_like(step.params))[0]
    assert (spare_of(of_nothing) != spare_of(start_of(SpareHead))).all()


THAWING = {"share": 0.75}
"""Of eight steps: the second module trains from the third step on, the last from the fifth."""
MODULES = ("first", "second", "read_out")


def thawed(step: int, steps: int, name: str) -> bool:
    return step > 2 * MODULES.index(name.split(".")[0])


@pytest.mark.parametrize("name", [*WAYS, "muon"])
def test_the_state_of_a_module_begins_when_it_thaws(name: str) -> None:
    muon = ({"optimizer": {"name": "muon", "ns_steps": 3}}, muon_and(torch.optim.AdamW))
    local, make = WAYS.get(name, muon)
    found = ours(local | {"unfreeze": THAWING})
    assert_same(found, theirs(make, trains=thawed), tolerance=2e-2 if name == "muon" else 2e-4)
    assert (found[0] - ours(local)[0]).norm() > 0.01


@pytest.mark.parametrize("train", ["body", ("first", "read_out")])
@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_frozen_parameters_stay_unchanged(name: str, train: Train) -> None:
    modules = {"body": ("first", "second")}.get(str(train), train)
    local, make = WAYS[name]
    found = ours(local, train=train)
    assert_same(found, theirs(make, trains=lambda step, steps, name: name.split(".")[0] in modules))
    start, net = 0, TanhNet(CLASSES)
    initial = Setting(local=USUAL).initial()
    for parameter_name, parameter in net.named_parameters():
        end = start + parameter.numel()
        moved = not torch.equal(found[0][start:end], initial[start:end])
        assert moved == (parameter_name.split(".")[0] in modules)
        start = end


def test_plain_sgd_is_that_of_pytorch_whichever_way_it_is_asked_for() -> None:
    common = {"momentum": 0.8, "weight_decay": 0.03, "clip_norm": 0.4}
    fused, theirs_by_name = ours(common), ours(common | {"optimizer": {"name": "sgd", "dampening": 0.0}})
    torch.testing.assert_close(fused[0], theirs_by_name[0], rtol=0, atol=1e-6)
