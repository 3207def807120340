"""Data that comes client by client, by `sizes` and `load`, is loaded where the client is trained."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rayfl.data import client_rows
from rayfl.data.client_rows import ClientRows
from rayfl.data.scenario_data import load
from rayfl.data.split_facts import empty_classes, split_facts
from rayfl.data.store import ShardStore
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import DataError, ScenarioError
from rayfl.streams import stream
from tests.data.prepared.hosts import ran, scores
from tests.data.prepared.scenes import data, from_disk, small_fragments, stored
from tests.data.prepared.scenes import prepared as written
from tests.engine.scenes import prepared

SIZES = [3, 9, 3, 6, 4, 5, 8, 5, 7, 10, 11]
TRIED = [0, 3, 6, 10]
LOADED: Counter[int] = Counter()
"""How often a client was loaded."""


class Sensors:
    """Clients with readings around their own number."""

    def __init__(self, edit: Callable[[int, Any], Any] = lambda client, pair: pair, sizes: Any = SIZES) -> None:
        self._edit, self._sizes = edit, sizes

    def sizes(self) -> Any:
        return self._sizes

    def load(self, client: int, rng: np.random.Generator) -> Any:
        LOADED[client] += 1
        x = rng.normal(client, 1, (SIZES[client], 4)).astype(np.float32)
        return self._edit(client, (x, np.arange(len(x)) % 3))


class OfFiveClasses(Sensors):
    num_classes = 5


def sensors(**how: Any) -> dict[str, Any]:
    return {"train": Sensors(**how), "test": (np.zeros((5, 4), np.float32), np.arange(5) % 3)}


def in_memory() -> dict[str, Any]:
    """The same samples as arrays, for data seed 0."""
    sets = sensors()
    pairs = [sets["train"].load(client, stream(0, "client train", client)) for client in range(len(SIZES))]
    x, y = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return sets | {"train": (x, y, np.repeat(np.arange(len(SIZES)), SIZES))}


def with_test_samples() -> dict[str, Any]:
    """Clients that have test samples of their own, and one that has no samples at all."""
    return {
        "train": Sensors(sizes=[0, *SIZES[1:]], edit=lambda client, pair: pair),
        "test": Sensors(sizes=[0, 9], edit=lambda client, pair: pair),
    }


def edited(at: int, edit: Callable[[np.ndarray, np.ndarray], Any]) -> dict[str, Any]:
    return sensors(edit=lambda client, pair: edit(*pair) if client == at else pair)


def raised(*pair: Any) -> Any:
    raise KeyError("reading")


def five_classes() -> dict[str, Any]:
    found = edited(2, lambda x, y: (x, y + 2))
    return found | {"train": OfFiveClasses(edit=found["train"]._edit)}


EDITS: dict[str, tuple[Callable[[np.ndarray, np.ndarray], Any], str]] = {
    "short": (
        lambda x, y: (x[1:], y),
        r"load\(\) returned float32\[\d, 4\] and int64\[\d\], but sizes\(\) says \d samples",
    ),
    "wide": (
        lambda x, y: (x.astype(np.float64), y),
        r"load\(\) returned float64\[4\] a sample, but float32\[4\] for other clients",
    ),
    "lone": (lambda x, y: x, r"load\(\) returned an object of type ndarray; return \(x, y\)"),
    "failing": (raised, r".*KeyError"),
    "infinite": (lambda x, y: (x + np.inf, y), r"inputs hold values that are not finite: the first in row 0"),
    "undefined": (lambda x, y: (x, y * np.nan), r"(labels hold values that are not finite|load\(\) returned float32)"),
    "masked": (
        lambda x, y: (np.ma.masked_greater(x, -99), y),
        r"inputs have masked values",
    ),
    "many": (
        lambda x, y: (x, y + 8),
        r"labels run from 8 to \d+, but 3 classes were known before the run; state their number as the source's",
    ),
}


def random() -> dict[str, Any]:
    return edited(3, lambda x, y: (x + len(LOADED) + LOADED.total(), y))


def unsized() -> dict[str, Any]:
    return sensors(sizes="many")


def of(source: str, **tables: Any) -> Any:
    return data(source, **tables).model_copy(update={"name": f"{__name__}:{source}"})


def sent(store: ShardStore) -> ShardStore:
    """A store as a worker process receives it."""
    received: ShardStore = pickle.loads(pickle.dumps(store))  # noqa: S301 - as Ray does between its own processes
    return received


def check(store: ShardStore, seed: int) -> None:
    assert store.train_shards.sizes.tolist() == SIZES
    assert list(store.client_names or ()) == [str(client) for client in range(len(SIZES))]
    for client, size in enumerate(SIZES):
        rows = store.train_shards[client]
        drawn = stream(seed, "client train", client).normal(client, 1, (size, 4)).astype(np.float32)
        assert np.array_equal(store.train.x[rows], drawn)
        assert store.train.y[rows].tolist() == [row % 3 for row in range(size)]


@pytest.mark.usefixtures(small_fragments.__name__)
@pytest.mark.parametrize("seed", [0, 3])
def test_each_client_has_what_load_returns_for_it_and_its_stream(seed: int, tmp_path: Path) -> None:
    store = stored(of("sensors"), seed)
    check(store, seed)
    check(sent(store), seed)
    written(of("sensors"), tmp_path, seed)
    check(stored(from_disk(tmp_path)), seed)


def test_the_process_that_starts_a_run_loads_a_few_clients_and_a_worker_those_that_it_reads() -> None:
    LOADED.clear()
    store = stored(of("sensors", validation_share=0.2, server_share=0.1))
    assert sorted(LOADED) == TRIED
    assert isinstance(store.train.x, ClientRows)
    assert isinstance(store.train.y, ClientRows)
    assert len(pickle.dumps(store)) < 4 * sum(SIZES) + 6000  # row numbers, and no samples
    received = sent(store)
    LOADED.clear()
    received.reopen()
    assert LOADED == {0: 1}  # the smallest that was tried
    rows = received.train_shards[8]
    assert len(received.train.x[rows]) == len(received.train.y[rows])
    assert LOADED == {0: 1, 8: 1}


@pytest.mark.parametrize("most", [1, 16 * 4 * 12])
def test_a_process_keeps_the_clients_that_it_loaded_last(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_rows, "KEPT_BYTES", most)
    store = sent(stored(of("sensors")))
    store.reopen()
    LOADED.clear()
    for client in (4, 5, 4, 10, 4):
        assert len(store.train.x[store.train_shards[client]]) == SIZES[client]
    assert ({4: 3, 5: 1, 10: 1} if most == 1 else {4: 1, 5: 1, 10: 1}) == LOADED
    clients = store.train.x.clients
    for client in range(len(SIZES)):
        clients.client("train", client)
        held = sum(x.nbytes + y.nbytes for x, y in clients._kept.values())
        assert held == clients._kept_bytes
        assert held <= most or len(clients._kept) == 1


def test_rows_of_several_clients_come_in_the_order_asked() -> None:
    store = stored(of("sensors"))
    whole = np.asarray(store.train.x)
    assert np.array_equal(whole, in_memory()["train"][0])
    rows = np.random.default_rng(0).permutation(len(whole))[:20]
    assert np.array_equal(store.train.x[rows], whole[rows])
    assert np.array_equal(store.train.take(rows).x[3:9], whole[rows][3:9])
    assert np.array_equal(store.train.y[np.arange(0)], np.arange(0))


@pytest.mark.parametrize(
    "shares", [{}, {"validation_share": 0.2, "test_share": 0.1}, {"server_share": 0.2}, {"clients": 5}]
)
def test_splits_are_those_of_the_same_samples_in_memory(shares: dict[str, Any]) -> None:
    lazy, whole = stored(of("sensors", **shares)), stored(of("in_memory", **shares))
    assert lazy.client_names == whole.client_names
    assert lazy.summary() == whole.summary()
    for name, samples in whole._sets.items():
        assert np.array_equal(np.asarray(lazy.samples(name).x), samples.x[:])
        assert np.array_equal(np.asarray(lazy.samples(name).y), samples.y)
    for client in range(whole.num_clients):
        assert np.array_equal(lazy.train_shards[client], whole.train_shards[client])


def test_clients_may_have_test_samples_and_those_without_samples_are_left_out() -> None:
    store = stored(of("with_test_samples"))
    assert list(store.client_names or ()) == [str(client) for client in range(1, len(SIZES))]
    assert store.test_shards is not None
    assert store.test_shards.sizes.tolist() == [9] + [0] * (len(SIZES) - 2)
    drawn = stream(0, "client test", 1).normal(1, 1, (9, 4)).astype(np.float32)
    assert np.array_equal(store.test.x[store.test_shards[0]], drawn)


@pytest.mark.parametrize("kind", EDITS)
def test_what_does_not_fit_is_named_by_the_process_that_loads_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "source", lambda: edited(2, EDITS[kind][0]))
    store = sent(stored(of("source")))
    with pytest.raises(DataError, match=rf"^data.name: '{__name__}:source': train: client 2.*{EDITS[kind][1]}"):
        store.train.y[store.train_shards[2]]


@pytest.mark.parametrize("kind", ["short", "lone", "failing", "infinite", "masked"])
def test_what_does_not_fit_ends_a_run_before_it_starts_if_the_client_is_tried(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "source", lambda: edited(3, EDITS[kind][0]))
    with pytest.raises(DataError, match=rf"^data.name: '{__name__}:source': train: client 3.*{EDITS[kind][1]}"):
        stored(of("source"))


def test_a_source_that_draws_from_elsewhere_or_has_no_sizes_is_refused() -> None:
    with pytest.raises(DataError, match=r"client 3: load\(\) returned other values the second time"):
        stored(of("random"))
    with pytest.raises(DataError, match=r"sizes\(\) returned <U4\[\]; return a number for each client"):
        stored(of("unsized"))


def named_classes() -> dict[str, Any]:
    return sensors(edit=lambda client, pair: (pair[0], np.array(["cat"] * len(pair[0]))))


def test_labels_that_are_texts_are_refused() -> None:
    with pytest.raises(DataError, match=r"train_y must be integer class labels .*number the classes"):
        stored(of("named_classes"))


def test_a_source_may_state_its_number_of_classes() -> None:
    store = stored(of("five_classes"))
    assert store.num_classes == 5
    assert store.train.y[store.train_shards[2]].tolist() == [2, 3, 4]


def of_unused_classes() -> dict[str, Any]:
    return {"train": OfFiveClasses(), "test": sensors()["test"]}


def test_preparing_keeps_the_classes_that_a_source_states(tmp_path: Path) -> None:
    assert written(of("of_unused_classes"), tmp_path).num_classes == 5
    assert stored(from_disk(tmp_path)).num_classes == stored(of("of_unused_classes")).num_classes == 5


@pytest.mark.parametrize("stated", ["many", 2.5, 0, [3]])
def test_a_number_of_classes_that_is_none_is_refused(stated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OfFiveClasses, "num_classes", stated)
    with pytest.raises(DataError, match=rf"train: the source's num_classes is {re.escape(repr(stated))}; state a"):
        stored(of("of_unused_classes"))


def uneven_sizes() -> dict[str, Any]:
    return sensors(sizes=[[1], [2, 3]])


def test_sizes_that_are_no_array_are_refused() -> None:
    with pytest.raises(DataError, match=r"uneven_sizes': train: the values of sizes\(\) are lists that differ"):
        stored(of("uneven_sizes"))


@pytest.mark.parametrize(
    "elsewhere",
    [
        lambda: sensors(sizes=[*SIZES[:-1], 12]),
        lambda: edited(0, lambda x, y: (x + 1, y)),
        lambda: {"train": in_memory()["train"]},
    ],
)
def test_a_worker_whose_source_has_other_clients_refuses(elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "source", sensors)
    store = sent(stored(of("source")))
    monkeypatch.setitem(globals(), "source", elsewhere)
    for _ in range(2):
        with pytest.raises(DataError, match=r"train: .* returns something else here than where the run started"):
            sent(store).reopen()


@pytest.mark.parametrize(
    ("tables", "key"),
    [
        ({"clients": 3, "partition": {"name": "dirichlet", "beta": 1.0}}, "data.partition: 'dirichlet'"),
        ({"clients": 3, "partition": "iid"}, "data.partition: 'iid'"),
        ({"classes": {"places": [[0, 2]]}}, "data.classes"),
        ({"labels_by": "quantiles"}, "data.labels_by"),
    ],
)
def test_what_needs_the_labels_of_all_clients_is_refused(tables: dict[str, Any], key: str) -> None:
    refusal = rf"^{key} needs the samples of all clients at once, but .*rayfl data prepare"
    with pytest.raises(ScenarioError, match=refusal):
        stored(of("sensors", **tables))


@pytest.mark.usefixtures(small_fragments.__name__)
def test_data_may_be_prepared_with_a_partition_that_needs_all_labels(tmp_path: Path) -> None:
    LOADED.clear()
    tables: dict[str, Any] = {"clients": 3, "partition": {"name": "dirichlet", "beta": 1.0}}
    written(of("sensors", **tables), tmp_path)
    assert {client: 3 if client in TRIED else 1 for client in range(len(SIZES))} == LOADED
    assert (
        stored(from_disk(tmp_path)).train_shards.sizes.tolist()
        == stored(of("in_memory", **tables)).train_shards.sizes.tolist()
    )


def test_statistics_of_labels_are_left_out() -> None:
    store = stored(of("sensors"))
    assert split_facts(store).classes is None
    assert empty_classes(store) == ""


def test_the_digest_depends_on_sizes_and_on_what_is_loaded() -> None:
    def digest(source: str, seed: int = 0) -> str:
        return stored(of(source), seed).provenance.digest

    assert digest("sensors") == digest("sensors")
    assert len({digest("sensors"), digest("with_test_samples"), digest("five_classes"), digest("sensors", 1)}) == 3
    assert "each loaded where it is trained" in load(of("sensors"), 0, Path(), Path()).provenance.description


def job_of(source: str, **tables: Any) -> RunPlan:
    """A run in which every client trains twice, on samples that each host loads itself."""
    phase = {"name": "p", "rounds": 2, "cohort": 7, "local": {"lr": 0.1, "batch_size": 4, "epochs": 2}}
    chosen = {"name": f"{__name__}:{source}", "validation_share": 0.2, "seed": 0, **tables}
    return prepared(data=chosen, model={"name": "mlp", "hidden": [3]}, phases=[phase], evaluation={"every": 1})


@pytest.mark.parametrize("shares", [{}, {"clients": 8, "server_share": 0.1}])
def test_a_run_has_the_bits_of_arrays_in_memory_on_any_hosts_and_resumed(shares: dict[str, float]) -> None:
    whole, events = ran(job_of("in_memory", **shares), 1)
    job = job_of("sensors", **shares)
    for hosts in (1, 2, 3):
        model, told = ran(job, hosts)
        assert model == whole
        assert scores(told) == scores(events)
    assert len(scores(events)) == 2
    assert ran(job, 2, resumed=True)[0] == whole


def test_a_run_ends_with_the_client_whose_samples_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "source", lambda: edited(2, EDITS["infinite"][0]))
    with pytest.raises(DataError, match="train: client 2: inputs hold values that are not finite"):
        ran(job_of("source", clients=len(SIZES)), 2)
