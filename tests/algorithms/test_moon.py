"""MOON against its loss, differentiated by autograd in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from rayfl.streams import client_torch_seed
from tests.algorithms.reference import Vector, assert_equal_and_unlike, fedavg, forward, mean, rounds, sizes
from tests.algorithms.scene import CLASSES, EVERYTHING, FULL, LOUD, PLAIN, SEED, Setting, TanhNet, trained


def cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    similarity: torch.Tensor = (a * b).sum(dim=1) / (a.norm(dim=1) * b.norm(dim=1))
    return similarity


def stand_in(first: str, setting: Setting, client: int) -> Vector | None:
    """For the previous model of a client that has none; a random one is drawn as any first model, for the client."""
    if first == "random":
        with torch.random.fork_rng():
            torch.manual_seed(client_torch_seed(SEED, "moon", 0, 0, client))
            return torch.cat([p.detach().flatten() for p in TanhNet(CLASSES).parameters()]).double()
    return setting.initial() if first == "initial" else None


def moon(setting: Setting, mu: float = 1.0, tau: float = 0.5, first: str = "skip") -> Vector:
    """A client without a previous model has no contrastive term, or the initial global model for it."""
    w = setting.initial()
    previous: dict[int, Vector] = {}
    for cohort in rounds(setting):
        received, trained_models = w, []
        for update in cohort:
            old = previous.get(update.client, stand_in(first, setting, update.client))

            def objective(
                y: Vector,
                x: torch.Tensor,
                labels: torch.Tensor,
                received: Vector = received,
                old: Vector | None = old,
            ) -> torch.Tensor:
                z, logits = forward(y, x, setting.loudness)
                loss = F.cross_entropy(logits, labels)
                if old is None:
                    return loss
                near = torch.exp(cosine(z, forward(received, x)[0]) / tau)
                far = torch.exp(cosine(z, forward(old, x)[0]) / tau)
                return loss + mu * -torch.log(near / (near + far)).mean()

            previous[update.client] = update.sgd(w, objective)
            trained_models.append(previous[update.client])
        w = mean(trained_models, sizes(cohort))
    return w


SETTINGS = {"everything": EVERYTHING, "full": FULL, "loud": LOUD}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_moon(setting: Setting) -> None:
    """The last network has other features in training mode; the received and the previous model are not in it."""
    ours = trained({"name": "moon", "mu": 5.0}, setting)
    assert_equal_and_unlike(ours, moon(setting, mu=5.0), moon(setting, mu=1.0), setting)


@pytest.mark.parametrize("options", [{"mu": 3.0, "tau": 0.1}, {"mu": 3.0, "tau": 2.0}], ids=["sharp", "soft"])
def test_temperatures(options: dict[str, Any]) -> None:
    assert_equal_and_unlike(trained({"name": "moon", **options}, PLAIN), moon(PLAIN, **options), fedavg(PLAIN), PLAIN)


def test_the_papers_temperature_and_weight_are_the_defaults() -> None:
    assert_equal_and_unlike(trained("moon", PLAIN), moon(PLAIN, mu=1.0, tau=0.5), moon(PLAIN, tau=1.0), PLAIN)


def test_feddecorrs_code_has_temperature_one_whatever_is_asked() -> None:
    ours = trained({"name": "moon", "mu": 5.0, "tau": 0.5, "divide_by_tau": False}, PLAIN)
    assert_equal_and_unlike(ours, moon(PLAIN, mu=5.0, tau=1.0), moon(PLAIN, mu=5.0, tau=0.5), PLAIN)


def test_the_initial_global_model_may_stand_for_a_previous_one() -> None:
    """It makes the term log 2, without a gradient, in round 1; a client that comes later first moves away from it."""
    ours = trained({"name": "moon", "mu": 5.0, "first": "initial"}, PLAIN)
    assert_equal_and_unlike(ours, moon(PLAIN, mu=5.0, first="initial"), moon(PLAIN, mu=5.0), PLAIN)


def test_a_random_network_of_the_clients_own_may_stand_for_a_previous_one() -> None:
    """Another one for every client; the same whenever it is asked for."""
    ours = trained({"name": "moon", "mu": 5.0, "first": "random"}, PLAIN)
    assert_equal_and_unlike(ours, moon(PLAIN, mu=5.0, first="random"), moon(PLAIN, mu=5.0, first="initial"), PLAIN)
    models = [stand_in("random", PLAIN, client) for client in (0, 3)]
    assert models[0] is not None
    assert models[1] is not None
    assert not torch.equal(models[0], models[1])
