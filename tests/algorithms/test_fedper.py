"""FedPer, and the example FedRep: clients' own heads and the body that they share, against float64."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rayfl.engine.events import RoundDone
from rayfl.errors import ScenarioError
from tests.algorithms.reference import MODULE_OF, PlainUpdate, Vector, assert_equal, distance, mean, rounds, sizes
from tests.algorithms.scene import EVERYTHING, PLAIN, Setting, prepared
from tests.engine.memory_store import MemoryStore
from tests.engine.scenes import cast, kept_by_clients, run_on_hosts, snapshot_of

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAD = torch.from_numpy(MODULE_OF == 2)
BODY = ~HEAD
Update = Callable[[Setting, PlainUpdate, int, Vector], Vector]
"""A client's training, from its own head on the server's body; the number is the round's."""


def plain(setting: Setting, update: Update) -> tuple[Vector, dict[int, Vector]]:
    """float64: the global model, and every client's head."""
    w, heads = setting.initial(), dict[int, Vector]()
    for number, cohort in enumerate(rounds(setting), start=1):
        changes = []
        for client in cohort:
            start = w.clone()
            start[HEAD] = heads.get(client.client, w[HEAD])
            trained = update(setting, client, number, start)
            heads[client.client] = trained[HEAD]
            changes.append((trained - w) * BODY)
        w = w + mean(changes, sizes(cohort))
    return w, heads


def together(setting: Setting, client: PlainUpdate, number: int, start: Vector) -> Vector:
    return client.sgd(start)


def in_turn(setting: Setting, client: PlainUpdate, number: int, start: Vector) -> Vector:
    """Three epochs of the head, then the body as `local` says."""
    head = PlainUpdate(setting, client.client, number, epochs=3).sgd(start, trains=lambda _: HEAD.double())
    return PlainUpdate(setting, client.client, number, request=1).sgd(head, trains=lambda _: BODY.double())


FEDREP = {"name": "fedrep:FedRep", "head_epochs": 3}


@pytest.fixture
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    importlib.invalidate_caches()


@pytest.mark.usefixtures("_examples")
@pytest.mark.parametrize(("algorithm", "update"), [("fedper", together), (FEDREP, in_turn)])
@pytest.mark.parametrize("setting", [PLAIN, EVERYTHING])
def test_heads_stay_with_clients_and_the_body_is_averaged(algorithm: Any, update: Update, setting: Setting) -> None:
    job, model = prepared(algorithm, setting)
    scheduler, server = cast(job, 2)
    list(scheduler.run())
    store = MemoryStore()
    kept = kept_by_clients(snapshot_of(scheduler, store), store)
    state = model.state_dict(torch.from_numpy(server.committed()[1]))
    ours = torch.cat([part.flatten() for part in state.values()]).double()
    w, heads = plain(setting, update)
    assert_equal(ours, w, setting)
    assert torch.equal(ours[HEAD], setting.initial().float().double()[HEAD])
    assert distance(plain(setting, together)[0], plain(setting, in_turn)[0], setting) > 1e-2
    assert kept.keys() == heads.keys()
    slots = [slot for slot in model.layout if slot.name.startswith("read_out.")]
    for client, head in heads.items():
        own = torch.from_numpy(kept[client]["phase/own part"]).double()
        expected = torch.cat([part.flatten() for part in torch.split(head, [slot.size for slot in slots])])
        assert len(own) == len(expected)
        assert (own - expected).abs().max() < 1e-5


def test_heads_are_in_no_message() -> None:
    _, events = run_on_hosts(prepared("fedper", PLAIN)[0], 1)
    (last,) = [event for event in events if isinstance(event, RoundDone) and event.round == PLAIN.rounds]
    assert last.traffic.down_values == last.traffic.up_values == sum(map(len, PLAIN.cohorts)) * int(BODY.sum())


@pytest.mark.usefixtures("_examples")
def test_with_privacy_of_samples_both_trainings_of_fedrep_are_charged() -> None:
    dp = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "accountant": "rdp"}
    setting = PLAIN.with_local(dp=dp)
    job, _ = prepared(FEDREP, setting)
    scheduler, _ = cast(job, 2)
    list(scheduler.run())  # a round that spends more than was planned ends the run
    with pytest.raises(ScenarioError, match=r"is not available with 'fedsam:FedSAM': one gradient a step is noised"):
        prepared("fedsam:FedSAM", setting)


@pytest.mark.parametrize(
    ("options", "phase", "changes", "complaint"),
    [
        ({"keeps": "all"}, {}, {}, r"phases.federated.algorithm.keeps: with 'all' there is nothing to share"),
        ({"keeps": ["neck"]}, {}, {}, r"phases.federated.algorithm.keeps: model TanhNet has no module 'neck'"),
        ({}, {"dp": {"level": "central", "noise_multiplier": 1.0, "clip_norm": 1.0}}, {}, r"noise would also fall on"),
    ],
)
def test_bad_input_is_named(options: Any, phase: Any, changes: Any, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        prepared({"name": "fedper", **options}, PLAIN, phase, **changes)
