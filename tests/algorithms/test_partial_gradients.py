"""`phases.N.train` with algorithms that ask for gradients, against PyTorch with `requires_grad_(False)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from rayfl.engine.events import Evaluated
from rayfl.streams import client_stream
from tests.algorithms.reference import MODULE_OF, PlainUpdate, Vector, assert_equal_and_unlike, rounds
from tests.algorithms.scene import CLASSES, PLAIN, RATE, SEED, Setting, TanhNet, prepared, trained
from tests.algorithms.test_fedmeta import halves
from tests.engine.scenes import run_on_hosts

META_LR, INNER_LR = 0.6, 0.4
TRAINS: dict[str, Any] = {"head": "head", "body": "body", "outer modules": ["first", "read_out"]}
MODULES = {"head": ("read_out",), "body": ("first", "second"), "outer modules": ("first", "read_out")}

Modules = tuple[str, ...]
Parameters = dict[str, torch.Tensor]


class PartlyFrozen:
    """A network in evaluation mode and float64 of which some modules train."""

    def __init__(self, modules: Modules) -> None:
        self.network = TanhNet(CLASSES).double().eval()
        nn.utils.vector_to_parameters(PLAIN.initial(), self.network.parameters())
        for name, parameter in self.network.named_parameters():
            parameter.requires_grad_(name.partition(".")[0] in modules)

    @property
    def free(self) -> Parameters:
        return {name: p.detach() for name, p in self.network.named_parameters() if p.requires_grad}

    def loss(self, at: Parameters, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(self.network, at, (x,)), y)

    def gradient(self, at: Parameters, x: torch.Tensor, y: torch.Tensor) -> Parameters:
        at = {name: value.detach().requires_grad_() for name, value in at.items()}
        return dict(zip(at, torch.autograd.grad(self.loss(at, x, y), list(at.values())), strict=True))

    def become(self, free: Parameters) -> None:
        self.network.load_state_dict(free, strict=False)

    def vector(self) -> Vector:
        return nn.utils.parameters_to_vector(self.network.parameters()).detach()


def moved(at: Parameters, rate: float, by: Parameters) -> Parameters:
    return {name: value + rate * by[name] for name, value in at.items()}


def mean(many: list[Parameters]) -> Parameters:
    return {name: torch.stack([one[name] for one in many]).mean(dim=0) for name in many[0]}


def samples(update: PlainUpdate, rows: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return update.x[rows], update.y[rows]


def fedmeta(modules: Modules, order: str, learned: bool = False) -> Vector:
    """MAML, or Meta-SGD where the rates are learned; the frozen parameters are no part of the graph."""
    model = PartlyFrozen(modules)
    rates = {name: torch.full_like(value, PLAIN.local["lr"]) for name, value in model.free.items()}
    for cohort in rounds(PLAIN):
        if not learned:
            rates = {name: torch.full_like(value, cohort[0].lr) for name, value in rates.items()}
        of_models, of_rates = [], []
        for update in cohort:
            support, query = halves(update)
            at = {name: value.requires_grad_() for name, value in model.free.items()}
            alpha = {name: value.clone().requires_grad_() for name, value in rates.items()}
            loss = model.loss(at, *samples(update, support))
            inner = torch.autograd.grad(loss, list(at.values()), create_graph=order == "exact")
            adapted = {name: at[name] - alpha[name] * g for name, g in zip(at, inner, strict=True)}
            outer = torch.autograd.grad(model.loss(adapted, *samples(update, query)), [*at.values(), *alpha.values()])
            of_models.append(dict(zip(at, outer, strict=False)))
            of_rates.append(dict(zip(alpha, outer[len(at) :], strict=True)))
        model.become(moved(model.free, -META_LR, mean(of_models)))
        if learned:
            rates = moved(rates, -META_LR, mean(of_rates))
    return model.vector()


def perfedavg(modules: Modules, delta: float | None = None) -> Vector:
    """Of first order, or Hessian-free with this delta."""
    model = PartlyFrozen(modules)
    for number, cohort in enumerate(rounds(PLAIN), start=1):
        ends = []
        for update in cohort:
            purposes = ("adaptation batch", "meta batch", "Hessian batch")
            streams = [client_stream(SEED, purpose, 0, number, update.client) for purpose in purposes]
            at, size = model.free, min(PLAIN.local["batch_size"], update.n)
            for _ in range(update.K):
                first, second, third = (
                    samples(update, stream.choice(update.n, size, replace=False)) for stream in streams
                )
                step = v = model.gradient(moved(at, -INNER_LR, model.gradient(at, *first)), *second)
                if delta is not None:
                    ahead, behind = (model.gradient(moved(at, side * delta, v), *third) for side in (1, -1))
                    step = {n: v[n] - INNER_LR * (ahead[n] - behind[n]) / (2 * delta) for n in v}
                at = moved(at, -update.lr, step)
            ends.append(at)
        model.become(mean(ends))
    return model.vector()


def qfedsgd(modules: Modules) -> Vector:
    """With q = 0, gradient descent on the mean of the clients' losses."""
    model = PartlyFrozen(modules)
    for cohort in rounds(PLAIN):
        slopes = [model.gradient(model.free, update.x, update.y) for update in cohort]
        model.become(moved(model.free, -cohort[0].lr, mean(slopes)))
    return model.vector()


FIXED = Setting(local={"lr": 0.3})
META: dict[str, Any] = {"meta_lr": META_LR}
SGD: dict[str, Any] = {"variant": "meta_sgd"}
FREE: dict[str, Any] = {"variant": "hessian_free", "delta": 0.8}
CASES: dict[str, tuple[dict[str, Any], Setting, Callable[[Modules], Vector]]] = {
    "fedmeta first": (META | {"order": "first"}, RATE, partial(fedmeta, order="first")),
    "fedmeta exact": (META, RATE, partial(fedmeta, order="exact")),
    "fedmeta rates first": (META | SGD | {"order": "first"}, FIXED, partial(fedmeta, order="first", learned=True)),
    "fedmeta rates exact": (META | SGD, FIXED, partial(fedmeta, order="exact", learned=True)),
    "perfedavg first": ({"inner_lr": INNER_LR}, PLAIN, perfedavg),
    "perfedavg free": ({"inner_lr": INNER_LR, **FREE}, PLAIN, partial(perfedavg, delta=0.8)),
    "qfedsgd": ({"q": 0.0}, RATE, qfedsgd),
}


@pytest.mark.parametrize(
    ("case", "part"),
    [  # each algorithm once, and each way to choose with a gradient of the first and of the second order
        ("fedmeta first", "body"),
        ("fedmeta exact", "outer modules"),
        ("fedmeta rates first", "head"),
        ("fedmeta rates exact", "body"),
        ("perfedavg first", "outer modules"),
        ("perfedavg free", "head"),
        ("qfedsgd", "body"),
    ],
)
def test_only_what_is_chosen_trains_as_in_a_network_of_which_the_rest_is_frozen(case: str, part: str) -> None:
    options, setting, expected = CASES[case]
    ours = trained({"name": case.split()[0], **options}, setting, train=TRAINS[part])
    whole = trained({"name": case.split()[0], **options}, setting)
    assert_equal_and_unlike(ours, expected(MODULES[part]), whole, setting)
    trains = [TanhNet.ordered_modules.index(module) for module in MODULES[part]]
    frozen = torch.from_numpy(~np.isin(MODULE_OF, trains))
    assert torch.equal(ours[frozen], setting.initial()[frozen])
    assert not torch.equal(ours[~frozen], setting.initial()[~frozen])


def test_personalisation_moves_the_chosen_modules_alone() -> None:
    """FedMeta of a head, adapted by one step of the head on all of a client's samples, scored on its test samples."""
    tuning: Mapping[str, Any] = {"train": "head", "steps": 1, "batch_size": "full", "lr": 2.0}
    algorithm = {"name": "fedmeta", "meta_lr": META_LR}
    job, _ = prepared(algorithm, RATE, {"train": "head"}, evaluation={"every": 1000, "personalize": dict(tuning)})
    _, events = run_on_hosts(job, 2)
    (last,) = [event for event in events if isinstance(event, Evaluated) and event.round == RATE.rounds]
    store = job.result.store
    model = PartlyFrozen(MODULES["head"])
    nn.utils.vector_to_parameters(fedmeta(MODULES["head"], "exact"), model.network.parameters())
    assert store.test_shards is not None
    scores = {}
    for client in range(store.num_clients):
        x, y = (torch.as_tensor(part[store.train_shards[client]]) for part in (store.train.x, store.train.y))
        adapted = moved(model.free, -2.0, model.gradient(model.free, x.double(), y))
        x, y = (torch.as_tensor(part[store.test_shards[client]]) for part in (store.test.x, store.test.y))
        scores[client] = float((functional_call(model.network, adapted, (x.double(),)).argmax(1) == y).double().mean())
    assert {score.client: score.scores["personalized_accuracy"] for score in last.clients} == pytest.approx(scores)
