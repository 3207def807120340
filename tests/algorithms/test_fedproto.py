"""The example FedProto: prototypes and the clients' own models, against float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rayfl.engine.events import RoundDone
from rayfl.errors import RayflError, ScenarioError
from tests.algorithms.reference import PlainUpdate, Vector, assert_equal, cross_entropy, distance, forward, rounds
from tests.algorithms.scene import CLASSES, EVERYTHING, PLAIN, SECOND, Setting, prepared
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, kept_by_clients, run_on_hosts, snapshot_after, snapshot_of

EXAMPLES = Path(__file__).parents[2] / "examples"
WEIGHT = 0.8
FEDPROTO = {"name": "fedproto:FedProto", "head": "read_out", "weight": WEIGHT}


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)


def plain(setting: Setting) -> tuple[dict[int, Vector], torch.Tensor]:
    """float64: the clients' models and the prototypes [classes, d]; classes that no client has had are zero."""
    models: dict[int, Vector] = {}
    prototypes, known = torch.zeros(CLASSES, SECOND).double(), torch.zeros(CLASSES).bool()

    def objective(w: Vector, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(()).double()
        for z, c in zip(forward(w, x)[0], y, strict=True):
            if known[c]:
                total = total + ((z - prototypes[c]) ** 2).mean()
        return cross_entropy(w, x, y) + WEIGHT * total / len(y)

    for cohort in rounds(setting):
        sums, counts = torch.zeros_like(prototypes), torch.zeros(CLASSES)
        for update in cohort:
            w = models[update.client] = update.sgd(models.get(update.client, setting.initial()), objective)
            for z, c in zip(forward(w, update.x)[0], update.y, strict=True):
                sums[c] += z
                counts[c] += 1
        for c in range(CLASSES):
            if counts[c]:
                prototypes[c], known[c] = sums[c] / counts[c], True
    return models, prototypes


@pytest.mark.parametrize("setting", [PLAIN, EVERYTHING], ids=["plain", "momentum, decay, clipping"])
def test_clients_train_towards_the_prototypes_of_the_round_before(setting: Setting) -> None:
    job, model = prepared(FEDPROTO, setting)
    scheduler, server = cast(job, 2)
    list(scheduler.run())
    store = MemoryStore()
    kept = kept_by_clients(snapshot_of(scheduler, store), store)
    models, prototypes = plain(setting)
    assert kept.keys() == models.keys()
    for client, expected in models.items():
        state = model.state_dict(torch.as_tensor(kept[client]["phase/own"]))
        assert_equal(torch.cat([part.flatten() for part in state.values()]).double(), expected, setting)
    _, held = server._kept
    assert torch.allclose(torch.tensor(held.get("prototypes", 0.0)), prototypes, atol=1e-5)
    alone = PlainUpdate(setting, 4, 1).sgd(setting.initial())
    assert distance(models[4], alone, setting) > 1e-2


def test_hosts_do_not_matter_and_prototypes_alone_are_sent() -> None:
    job, _ = prepared(FEDPROTO, PLAIN)
    (one, events), (three, _) = (run_on_hosts(job, hosts) for hosts in (1, 3))
    assert (one == three).all()
    (first, *_) = [event for event in events if isinstance(event, RoundDone)]
    assert first.traffic.up_values == 3 * (CLASSES * SECOND + CLASSES)


def test_the_virtual_clock_plans_with_the_prototypes() -> None:
    devices = {"down_bytes_per_s": 8.0, "up_bytes_per_s": 2.0}
    job, _ = prepared(FEDPROTO, PLAIN, participation=devices)
    with_devices, events = run_on_hosts(job, 2)
    assert (with_devices == run_on_hosts(prepared(FEDPROTO, PLAIN)[0], 2)[0]).all()
    values = CLASSES * SECOND + CLASSES
    simulated = [event.simulated for event in events if isinstance(event, RoundDone)]
    assert [each and each.seconds for each in simulated] == pytest.approx(
        [(rounds + 1) * 4 * values * (1 / 8 + 1 / 2) for rounds in range(PLAIN.rounds)]
    )


def test_server_state_of_any_shape_survives_a_snapshot() -> None:
    job, _ = prepared(FEDPROTO, PLAIN)
    whole = cast(job, 1)
    list(whole[0].run())
    second, server = cast(job, 3)
    second.restore(*snapshot_after(job, 2, 2))
    list(second.run())
    for name in ("prototypes", "known"):
        assert (server._kept[1].get(name, 0.0) == whole[1]._kept[1].get(name, 0.0)).all()
    assert server._kept[1].get("prototypes", 0.0).shape == (CLASSES, SECOND)


def test_privacy_of_samples_and_layers_that_are_not_there_are_rejected() -> None:
    dp: Any = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    with pytest.raises(ScenarioError, match="it sends features of single samples"):
        prepared(FEDPROTO, PLAIN.with_local(dp=dp))
    with pytest.raises(RayflError, match=r"the model has no tensor 'neck.weight'"):
        run_on_hosts(prepared(FEDPROTO | {"head": "neck"}, PLAIN)[0], 1)
