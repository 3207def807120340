"""What Ray adds to the engine, once each, on one cluster whose hosts stay between tests.

The same bits as in one process, whatever dies; errors; runs that belong to the cluster; trials of Ray Tune. The longer
and rarer cases are in the slow tests beside this file.
"""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import ray
import torch
from ray.cluster_utils import Cluster
from rich.console import Console

import rayfl
from rayfl.backends.ray import private
from rayfl.backends.ray.connection import attached
from rayfl.backends.ray.kept_cluster import KeptCluster, cluster_of_trials
from rayfl.backends.ray.log import RayLog
from rayfl.backends.ray.session import ray_session
from rayfl.callbacks.callback import RunSoFar
from rayfl.cli.cluster import main
from rayfl.engine.backend import LONGEST_CHAIN
from rayfl.engine.events import Event
from rayfl.errors import ResourceError, ScenarioError
from rayfl.models.tensors import split
from rayfl.runs.session import Session
from tests.backends.ray.addresses import connected_cluster, loopback
from tests.backends.ray.test_algorithms_on_ray import scenario
from tests.backends.ray.test_deaths import Kills, kill
from tests.backends.ray.test_reopening import rows
from tests.callbacks.scene import PLAIN, figures, model_of, run, same, tables
from tests.engine.scenes import by_kind, prepared, run_on_hosts
from tests.object_store import CREDENTIALS, object_store
from tests.runs.lifecycle.scene import SCENE
from tests.service.test_submission import LONG, nothing_left, until

pytestmark = [pytest.mark.ray, pytest.mark.takes("Ray's processes start, and most load PyTorch")]

HEAD, LOST = loopback(2), loopback(3)
NODE: dict[str, Any] = {"object_store_memory": 100 * 2**20, "include_dashboard": False, "num_gpus": 1}
HOSTS = {"hosts": 2, "cpus_per_host": 0.5, "gpus_per_host": 0.5, "device": "cpu", "relay": "spread"}
"""Every test's, so that one test can use those of the one before."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A node with 3 CPUs, and with a GPU that only Ray believes in; a dead node is noticed after about 2 s."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():  # hosts look for them where they write to a URI
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(Path(rayfl.__file__).parent.parent))
        patch.setenv("RAY_worker_niceness", "0")  # else other tests, in another process, go first
        patch.setattr("rayfl.backends.ray.states.FIRST_PAUSE_S", 0.0)
        # a host that Ray has restarted counts as another recovery if the driver happens to ask meanwhile
        patch.setattr("rayfl.backends.ray.attempt.ASKS_EVERY_S", float("inf"))
        with connected_cluster(500, num_cpus=3, node_ip_address=HEAD, **NODE) as made:
            yield made


@pytest.fixture(scope="module")
def hosts(cluster: Cluster) -> Iterator[KeptCluster]:
    """Those that all runs of this file share, once the first has started them."""
    with KeptCluster() as kept, pytest.MonkeyPatch.context() as patch:
        alone = Session._cluster
        patch.setattr(Session, "_cluster", lambda session: alone(session) and kept)
        yield kept


def run_on_ray(kept: KeptCluster, **changes: Any) -> tuple[np.ndarray, list[Event], list[dict[str, str]]]:
    with ray_session(prepared(**changes, resources=HOSTS), None, RayLog(Path(os.devnull)), kept=kept) as session:
        began = list(session.hosts)
        events = list(session.events())
        return split(session.committed()[1])[0], events, began


def test_a_run_survives_the_loss_of_a_node_with_the_same_bits(
    cluster: Cluster, hosts: KeptCluster, tmp_path: Path
) -> None:
    """The host that was there starts again on the other node, where the next tests find it."""
    node = cluster.add_node(num_cpus=1, node_ip_address=LOST, **NODE)
    mark = tmp_path / "lost"
    phase = {"name": "p", "rounds": 2, "cohort": 5, "local": {"batch_size": 16}}
    losing = {"name": "tests.backends.ray.broken:LosesNode", "mark": str(mark), "node": LOST}
    try:
        model, _, began = run_on_ray(hosts, phases=[phase | {"algorithm": losing}])
    finally:
        cluster.remove_node(node, allow_graceful=False)
    assert mark.exists()
    assert sorted(host["node"] for host in began) == [HEAD, LOST]
    assert sum(node["Alive"] for node in ray.nodes()) == 1
    expected, _ = run_on_hosts(prepared(phases=[phase]), 1)
    assert np.array_equal(model, expected)


class Restarted:
    """Dies once on request."""

    def id(self) -> str | None:
        return ray.get_runtime_context().get_actor_id()

    def die(self) -> None:
        os._exit(1)


def test_what_is_private_in_ray_means_what_rayfl_takes_it_for(cluster: Cluster) -> None:
    address = cluster.address
    with attached(address):
        restarted: Any = ray.remote(num_cpus=0, max_restarts=1)(Restarted)
        actor = restarted.remote()
        assert (ray.get(actor.id.remote()), private.restarts(actor)) == (private.actor_id(actor), 0)
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(actor.die.remote())
        until(lambda: private.restarts(actor) == 1)
        free = private.available_resources_per_node()
        assert {node["NodeID"] for node in ray.nodes() if node["Alive"]} <= set(free)
        assert private.draining_nodes() == set()  # test_node_loss.py has a node that drains
        assert not private.started_cluster()  # it has its own process
        assert {address, private.find_bootstrap_address(None)} <= private.find_gcs_addresses()  # others may run too
        assert private.temporary_folder() == Path(tempfile.gettempdir()) / "ray"
        assert len(private.output_printers()) <= 1
        printed: list[object] = []
        before_messages, before_output = private.message_printer(), private.output_printers()
        private.print_messages_with(lambda data, ignore_prefix: printed.append(data))
        private.message_printer()("a", False)
        private.print_messages_with(before_messages)
        private.print_output_with([printed.append])
        (printer,) = private.output_printers()
        printer("b")
        private.print_output_with(before_output)
        assert (printed, private.message_printer()) == (["a", "b"], before_messages)
    with private.init_grpc_channel(address) as channel:
        ask = channel.unary_unary(private.CLUSTER_ID, request_serializer=bytes, response_deserializer=bytes)
        assert ask(b"", timeout=5)
    assert not private.in_tune_session()


def test_hosts_share_a_gpu_by_fractions_of_it(hosts: KeptCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, began = run_on_ray(hosts, phases=[{"name": "p", "rounds": 1, "cohort": 1}])
    assert [(host["device"], host["node"]) for host in began] == [("cpu", HEAD)] * 2
    monkeypatch.setattr("rayfl.backends.ray.capacity.SETTLE_S", 0.0)
    for number, told in ((1, r"is busy: .* 0 of 1 GPU are free"), (3, r"3 workers .* do not fit .* that fits is 2")):
        with (
            pytest.raises(ResourceError, match=told),
            ray_session(prepared(resources=HOSTS | {"hosts": number}), None, RayLog(Path(os.devnull))),
        ):
            pass


CROSSING: list[dict[str, Any]] = [
    {"schedule": "relay"},
    {"algorithm": {"name": "scaffold", "aggregation": "median"}, "report": ["step", "divergence", "norms"]},
    {"algorithm": {"name": "coprefl", "queries": "server"}, "server_training": {"steps": 2, "lr": 0.1}},
    {"algorithm": "qfedsgd", "local": {"lr": 0.2}},
    {"cohort": {"sampler": "power_of_choice", "clients": 3, "candidates": 8}},
    {"algorithm": "ditto", "eval_model": "ema", "ema_decay": 0.8},
    {"schedule": "buffered", "concurrency": 5, "buffer": 2},
]
"""Of each kind of message one: models that travel, states that stay, updates one by one, gradients, scores, models of
clients and of an average, answers in flight. All algorithms are in the slow test_algorithms_on_ray."""


def test_models_scores_and_scalars_are_those_of_one_process(hosts: KeptCluster) -> None:
    crossing = scenario("tests.algorithms.test_buffers:NormNet", CROSSING, client_model="personal")
    crossing["participation"] = {"steps_per_s": {"lognormal": [1.0, 1.0]}}
    expected, expected_events = run_on_hosts(prepared(**crossing), 1)
    model, events, _ = run_on_ray(hosts, **crossing)
    assert np.array_equal(model, expected)
    assert repr(by_kind(events)) == repr(by_kind(expected_events))  # a gradient has no training loss: NaN
    assert [*map(len, by_kind(events))] == [2 * len(CROSSING)] * 2


def test_a_relay_longer_than_the_longest_chain_of_references_gives_the_same_bits(hosts: KeptCluster) -> None:
    local = {"steps": 1, "batch_size": 1}
    phase = {"name": "long", "schedule": "relay", "rounds": LONGEST_CHAIN // 12 + 2, "cohort": 1.0, "local": local}
    changes: dict[str, Any] = scenario("tests.algorithms.scene:TanhNet", [phase]) | {"evaluation": {"every": 1000}}
    expected, _ = run_on_hosts(prepared(**changes), 1)
    model, _, _ = run_on_ray(hosts, **changes)
    assert np.array_equal(model, expected)


class Disturbed(NamedTuple):
    """A run at a URI on Ray whose server and, later, host are killed, whose code then fails, and which is resumed.

    Attributes:
        error: The error with which it ended.
        status: Its status then.
        states: How many files of states were at the URI then.
        rows: The metrics of the resumed run.
        model: The model of the resumed run.
        undisturbed: Model and metrics of the same run in one process.
    """

    error: str
    status: dict[str, Any]
    states: int
    rows: list[dict[str, Any]]
    model: dict[str, torch.Tensor]
    undisturbed: tuple[dict[str, torch.Tensor], list[dict[str, Any]]]


class KillsFirst(Kills):
    """Kills the first host, which has client 10 in rounds 5 and 6, and so a state that round 6 needs."""

    _kept: Any = None

    def of(self, kept: KeptCluster) -> KillsFirst:
        self._kept = kept
        return self

    def on_round(self, run: RunSoFar) -> None:
        assert run.round is not None
        if self.victims.get(run.round.round) == "host":
            kill("host", self._kept.actors._actors.hosts[0].actor)
        else:
            super().on_round(run)


@pytest.fixture(scope="module")
def disturbed(hosts: KeptCluster, tmp_path_factory: pytest.TempPathFactory) -> Disturbed:
    folder, quiet = tmp_path_factory.mktemp("disturbed"), Console(quiet=True)
    mended = folder / "mended"
    scene: dict[str, Any] = tables(**SCENE) | {"checkpoint": {"rounds": 1}, "resources": HOSTS}
    # without differential privacy, whose libraries every new process would load for seconds
    *before, last = (phase | {"local": PLAIN["local"]} for phase in scene["phases"])
    last |= {"cohort": {"explicit": [[1, 2], [3, 5], [4, 6]]}}
    scene["phases"] = [*before, last]
    undisturbed = rayfl.run(scene, backend="inline", folder=folder / "undisturbed", console=quiet)
    failing = {"name": "tests.backends.ray.broken:Mended", "server_optimizer": "adam", "mark": str(mended)}
    scene["phases"] = [*before, last | {"algorithm": failing}]
    (folder / "store").mkdir()
    with object_store(folder / "store") as store:
        uri, place = store.uri("run"), store.folder / "run"
        kills = KillsFirst(name="kills", victims={1: "server", 5: "host"}).of(hosts)
        with pytest.raises(rayfl.RayflError) as caught:
            rayfl.run(scene, folder=uri, callbacks=[kills], console=quiet)
        status = json.loads((place / "status.json").read_text())
        states = len(list(place.glob("checkpoints/states/*/*.safetensors")))
        mended.touch()
        resumed = rayfl.run(resume=uri, backend="inline", console=quiet)
        return Disturbed(
            str(caught.value), status, states, rows(place), resumed.state_dict,
            (undisturbed.state_dict, rows(folder / "undisturbed")),
        )  # fmt: skip


def test_a_run_goes_on_after_the_death_of_its_server_and_of_a_host_with_clients_states(disturbed: Disturbed) -> None:
    assert disturbed.status["recoveries"] == 2
    assert disturbed.status["committed_rounds"] == 7


def test_a_client_whose_code_raises_is_named_with_the_remote_traceback(disturbed: Disturbed) -> None:
    assert disturbed.status["status"] == "failed"
    assert re.match(r"client 5\b.*phase 'adaptive', round 8", disturbed.error)
    assert "KeyError: 'no such column'" in disturbed.error
    assert "broken.py" in disturbed.error


def test_hosts_write_their_states_to_a_uri_from_which_a_run_is_resumed_in_one_process(disturbed: Disturbed) -> None:
    assert disturbed.states
    model, rows = disturbed.undisturbed
    assert all(torch.equal(disturbed.model[name], value) for name, value in model.items())
    assert disturbed.rows == rows


def test_a_submitted_run_is_found_by_name_stopped_and_leaves_what_a_run_here_does_and_nothing_on_the_cluster(
    cluster: Cluster, hosts: KeptCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts.actors.discard()
    scene = tables(phases=[LONG], resources={"hosts": 1})
    submitted = rayfl.submit(scene, name="long", out=tmp_path, console=Console(quiet=True))
    with pytest.raises(ScenarioError, match="name: an active run on this cluster is already called 'long'"):
        rayfl.submit(scene, name="long", out=tmp_path, console=Console(quiet=True))
    handle = rayfl.attach("long")
    assert handle.folder == submitted.folder
    until(lambda: len(handle.metrics()) >= 2)
    for command in (["status"], ["stop", "long"]):
        assert main([*command[1:], "--address", cluster.address], f"rayfl {command[0]}") == 0
    assert re.search(r"long +\d+ of 100000 +plain .*running", capsys.readouterr().out)
    result, status = handle.result(), handle.status()
    assert (status["status"], status["stopped"]["callback"]) == ("finished", "handle.stop()")
    rounds = status["stopped"]["round"]
    expected = run(tmp_path / "inline", phases=[{**LONG, "rounds": rounds}])
    assert same(model_of(result), model_of(expected))
    assert figures(result) == figures(expected)
    assert "test accuracy" in (handle.folder / "run.log").read_text()
    until(nothing_left)


def trial(config: dict[str, Any]) -> None:
    """Notes which host it had."""
    run(Path(config["out"]), "ray", **of_trial(config["seed"]))
    kept = cluster_of_trials()
    assert kept is not None
    assert kept.actors._actors is not None
    (host,) = kept.actors._actors.hosts
    (Path(config["out"]) / f"host of {config['seed']}").write_text(host.actor._actor_id.hex())


def of_trial(seed: int) -> dict[str, Any]:
    return tables(phases=[PLAIN], resources={"hosts": 1}, seed=seed)


@pytest.mark.filterwarnings("ignore")  # Tune's own
def test_trials_of_ray_tune_report_their_metrics_and_share_the_hosts_in_their_bundles(
    hosts: KeptCluster, tmp_path: Path
) -> None:
    pytest.importorskip("pandas", reason="rayfl[tune] is not installed")
    from ray import tune

    hosts.actors.discard()
    tuner = tune.Tuner(
        tune.with_resources(trial, tune.PlacementGroupFactory([{"CPU": 1.0}, {"CPU": 1.0}])),
        param_space={"seed": tune.grid_search([1, 2]), "out": str(tmp_path)},
        tune_config=tune.TuneConfig(reuse_actors=True, max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=str(tmp_path / "tune"), verbose=0),
    )
    before = signal.getsignal(signal.SIGINT)
    try:
        results = tuner.fit()
    finally:
        signal.signal(signal.SIGINT, before)  # Tune leaves its own
    for number, seed in enumerate((1, 2)):
        reported = results[number]
        assert reported.error is None
        expected = run(tmp_path / "here", **of_trial(seed)).metrics
        assert reported.metrics_dataframe is not None
        assert reported.metrics_dataframe["test_loss"].tolist() == expected["test_loss"].to_pylist()
    assert len({path.read_text() for path in tmp_path.glob("host of *")}) == 1


def test_the_cluster_that_is_connected_may_be_named_in_several_ways_and_has_its_own_dashboard(
    cluster: Cluster,
) -> None:
    host, _, port = cluster.address.rpartition(":")
    for named in (None, "auto", f"{host}:{port}", f"localhost:{port}", f"127.0.0.1:{port}"):
        with attached(named):
            assert ray.is_initialized()
    with pytest.raises(ResourceError, match=r"is already connected to the Ray cluster"), attached("127.0.0.9:6379"):
        pass
    with pytest.raises(ScenarioError, match=r"^resources.dashboard: has no effect"), attached(None, dashboard=True):
        pass
