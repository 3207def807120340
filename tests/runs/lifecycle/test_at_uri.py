"""Runs at URIs: what they leave there, how they go on from there, and what becomes of them where nothing is written."""

from __future__ import annotations

import gc
import json
import shlex
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rayfl
from rayfl.callbacks.callback import Callback
from rayfl.cli.analyse import main as analyse
from rayfl.cli.run import main
from rayfl.config.scenario import Scenario
from rayfl.errors import ResourceError, ScenarioError
from rayfl.interruption import Terminated
from rayfl.remote_folder import RemoteFile, RemoteFolder
from rayfl.runs.archive import RunArchive
from rayfl.runs.working_folder import WorkingFolder
from tests.callbacks.scene import PLAIN, tables
from tests.object_store import CREDENTIALS, DENIED, FULL, ObjectStore, object_store
from tests.runs.lifecycle.scene import SCENE, Does, EndsAfter, content, rows

pytestmark = pytest.mark.usefixtures("written_at_once")

SHORT: dict[str, Any] = {"phases": [PLAIN | {"rounds": 4}], "checkpoint": {"rounds": 1}}
"""Four rounds."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture(autouse=True)
def _mended(store: ObjectStore) -> Iterator[None]:
    yield
    store.refuses.clear()


@pytest.fixture(autouse=True)
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where working folders are."""
    folder = tmp_path / "working"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr("rayfl.runs.working_folder.LAST_PAUSES_S", ())
    return folder


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port without a listener, which no other process gets meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def run(scenario: dict[str, Any] | None = None, *callbacks: Callback, **where: Any) -> rayfl.Result:
    console = Console(width=10_000, force_terminal=False)
    return rayfl.run(scenario, backend="inline", callbacks=list(callbacks), console=console, **where)


def left_in(working: Path) -> list[Path]:
    return list(working.glob("rayfl-run-*"))


@pytest.mark.takes("starts the server of buckets")
@pytest.mark.parametrize("kind", [pytest.param("file", marks=pytest.mark.slow), "s3"])
def test_a_run_that_was_interrupted_goes_on_elsewhere_to_the_same_bits(
    kind: str, store: ObjectStore, undisturbed: rayfl.Result, working: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    place = store.folder / "resumed" if kind == "s3" else tmp_path / "resumed"
    uri = store.uri("resumed") if kind == "s3" else f"file://{place}"
    scenario = tables(**SCENE) | {"checkpoint": {"rounds": 2}}
    with pytest.raises(Terminated):
        run(scenario, EndsAfter(name="ends", round=5, how="once"), folder=uri)
    assert f"continue with `rayfl resume {shlex.quote(uri)}`" in capsys.readouterr().out
    assert json.loads((place / "status.json").read_text())["status"] == "interrupted"
    assert left_in(working) == []

    result = run(resume=uri)
    assert (result.uri, rows(place)) == (uri, rows(undisturbed.directory))
    assert (result.directory / "metrics.jsonl").read_bytes() == (place / "metrics.jsonl").read_bytes()
    assert (place / "clients.parquet").is_file()
    assert content(place / "model.safetensors") == content(undisturbed.directory / "model.safetensors")
    assert json.loads((place / "status.json").read_text())["status"] == "finished"
    manifests = sorted(place.glob("checkpoints/*.json"))
    named = "".join(path.read_text() for path in manifests)
    states = list(place.glob("checkpoints/states/*/*"))
    assert len(manifests) == 2
    assert states
    assert all(state.name in named for state in states)
    assert not [path for path in place.rglob(".*") if path.is_file()]
    recorded = b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())
    assert all(secret not in recorded.decode(errors="replace") for secret in CREDENTIALS.values())
    del result
    gc.collect()
    assert left_in(working) == []


def test_a_damaged_state_is_told_and_the_checkpoint_before_is_used(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    uri, place = store.uri("damaged"), store.folder / "damaged"
    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tables(**SHORT), EndsAfter(name="ends", round=4), folder=uri)
    before, last = sorted(place.glob("checkpoints/*.json"))
    latest = json.loads(json.loads(last.read_text())["body"])["snapshot"]["server"]["latest"]["stored"]["place"]
    state = place / "checkpoints" / "states" / latest
    state.write_bytes(state.read_bytes()[:-100])
    run(resume=uri)
    told = capsys.readouterr().out
    assert f"'{latest}' in '{store.uri('damaged/checkpoints/states')}' is damaged" in told
    assert f"continues after round {int(before.stem.removeprefix('round-'))}" in told
    assert [row["round"] for row in rows(place)] == [1, 2, 3, 4]


def test_a_full_bucket_costs_checkpoints_but_not_the_last_good_one(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    place, kept = store.folder / "full", list[str]()

    def fills() -> None:
        kept.extend(path.name for path in place.glob("checkpoints/*.json"))
        store.refuses["checkpoints/round-"] = FULL

    def looks() -> None:
        assert {path.name for path in place.glob("checkpoints/*.json")} >= set(kept)
        store.refuses.clear()

    phases = [PLAIN | {"rounds": 6}]
    run(
        tables(**SHORT | {"phases": phases}),
        Does(round=3, what=fills),
        Does(round=5, what=looks),
        folder=store.uri("full"),
    )
    told = capsys.readouterr().out
    assert kept
    assert "warning: no checkpoint was written; the run continues: cannot write" in told
    assert "The bucket is full" in told
    assert json.loads((place / "status.json").read_text())["status"] == "finished"
    assert sorted(place.glob("checkpoints/*.json"))[-1].name > max(kept)


def test_a_run_stops_where_a_checkpoint_cannot_be_written_if_it_shall(store: ObjectStore) -> None:
    def fills() -> None:
        store.refuses["/states/"] = FULL

    scenario = tables(**SHORT) | {"checkpoint": {"rounds": 1, "on_failure": "stop"}}
    with pytest.raises(ResourceError, match=r"The bucket is full.*; with checkpoint.on_failure = 'continue' the run"):
        run(scenario, Does(round=2, what=fills), folder=store.uri("stops"))
    store.refuses.clear()
    assert run(resume=store.uri("stops")).metrics["round"][-1].as_py() == 4


def test_files_that_cannot_be_published_stay_and_are_named(store: ObjectStore, working: Path) -> None:
    def ends() -> None:
        store.refuses[""] = DENIED

    with pytest.raises(ResourceError) as caught:
        run(tables(**SHORT) | {"checkpoint": {}}, Does(round=2, what=ends), folder=store.uri("denied"))
    (folder,) = left_in(working)
    assert f"unpublished files of the run are in {folder}; copy them" in str(caught.value)
    assert "ACCESS_DENIED" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(RunArchive(folder).rows) == 4
    assert (folder / "model.safetensors").is_file()


def test_a_run_that_fails_for_another_reason_says_that_reason(
    store: ObjectStore, working: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends() -> None:
        store.refuses[""] = DENIED
        raise RuntimeError("left on purpose")

    with pytest.raises(rayfl.RayflError, match="left on purpose"):
        run(tables(**SHORT) | {"checkpoint": {}}, Does(round=2, what=ends), folder=store.uri("both"))
    (folder,) = left_in(working)
    assert f"unpublished files of the run are in {folder}; copy them" in capsys.readouterr().out


def test_a_new_run_gets_its_own_place_and_one_that_has_a_run_is_rejected(store: ObjectStore) -> None:
    first, second = (run(tables(**SHORT), out=store.uri("many"), overrides={"checkpoint.rounds": 0}) for _ in range(2))
    places = list((store.folder / "many").iterdir())
    assert {str(result.uri).partition("?")[0] for result in (first, second)} == {
        f"s3://{store.folder.name}/many/{place.name}" for place in places
    }
    assert len(places) == 2
    with pytest.raises(ResourceError, match="already has the records of a run"):
        run(tables(**SHORT), folder=first.uri)


def test_a_model_can_start_from_a_run_at_a_uri(store: ObjectStore) -> None:
    uri = store.uri("first")
    first = run(tables(**SHORT), folder=uri)
    second = run(tables(**SHORT) | {"start": {"run": uri}, "seed": 3}, folder=store.uri("second"))
    origin = json.loads((second.directory / "environment.json").read_text())["start"]
    assert (origin["kind"], origin["path"]) == ("run", uri)
    assert first.metrics["test_loss"][-1] != second.metrics["test_loss"][-1]
    with pytest.raises(rayfl.RayflError, match=r"is not the folder of a run: it has no status\.json"):
        run(tables(**SHORT) | {"start": {"run": store.uri("nothing")}}, folder=store.uri("third"))


@pytest.mark.parametrize("key", ["out", "folder", "resume"])
@pytest.mark.parametrize(
    ("uri", "complaint"),
    [
        ("s4://bucket/runs", "Unrecognized filesystem type in URI"),
        ("s3://no-such-bucket/runs?{at}", "NO_SUCH_BUCKET"),
        ("s3://bucket/runs?colour=red", "Unexpected query parameter in S3 URI: 'colour'"),
        ("s3://name:hunter2@bucket/runs", "it must not contain credentials"),
        ("hdfs://name:hunter2@host/runs", "it must not contain credentials"),
        ("abfs://box@account/runs?client_secret=hunter2", "it must not contain credentials"),
        (
            "s3://bucket/runs?sig=hunter2",
            r"'s3://bucket/runs\?sig=…': a URI is printed .* must not contain credentials",
        ),
    ],
)
def test_a_uri_where_nothing_can_be_written_is_rejected_at_once(
    key: str, uri: str, complaint: str, store: ObjectStore, working: Path
) -> None:
    """Before the scenario is read, so long before an actor starts."""
    uri = uri.format(at=store.uri("").partition("?")[2])
    with pytest.raises(rayfl.RayflError, match=complaint) as caught:
        run({"no": "scenario"} if key != "resume" else None, **{key: uri})
    told = str(caught.value)
    assert "\n" not in told
    assert "hunter2" not in told
    assert left_in(working) == []


def test_wrong_credentials_are_told(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    uri = store.uri("strange").replace("&scheme", "&region=us-east-1&scheme")  # another one than what is open already
    with pytest.raises(ResourceError, match=r"cannot write 's3://.*ACCESS_DENIED") as caught:
        run({}, out=uri)
    assert "somebody-else" not in str(caught.value)


@pytest.mark.slow  # pyarrow tries for six seconds
def test_a_server_that_is_not_there_is_told(store: ObjectStore, silent_port: int) -> None:
    with pytest.raises(ResourceError, match="Could not connect to server"):
        run({}, out=f"s3://{store.folder.name}/runs?endpoint_override=127.0.0.1:{silent_port}&scheme=http")


def test_a_uri_without_a_run_is_named(store: ObjectStore) -> None:
    with pytest.raises(ResourceError, match=r"'s3://.*/empty\?.*' has no run to resume: there is no scen"):
        run(resume=store.uri("empty"))


def test_the_command_takes_uris(store: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toml = tmp_path / "short.toml"
    toml.write_text(Scenario.from_tables(tables(**SHORT)).to_toml())
    assert main([str(toml), "--backend", "inline", "--out", store.uri("command")]) == 0
    (place,) = (store.folder / "command").iterdir()
    uri = store.uri(f"command/{place.name}")
    assert f"records: {uri}" in capsys.readouterr().out.replace("\n", "")
    assert main(["--backend", "inline", "--resume", uri, "phases.plain.rounds=5"]) == 0
    assert len(RunArchive(place).rows) == 5


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (
            lambda uri: rayfl.run("femnist_cyclic", data_dir=uri),
            "data_dir: .* but rayfl reads it from the disk of this machine",
        ),
        (
            lambda uri: rayfl.run("femnist_cyclic", starts=uri),
            "starts: .* but rayfl reads it from the disk of this machine",
        ),
        (
            lambda uri: rayfl.run("femnist_cyclic", out=Path(uri)),
            "in Python as a string .a Path cannot represent a URI",
        ),
        (lambda uri: rayfl.grid("cyclicfl_table_2", out=uri), "out: .*: use a folder that every node can access"),
        (lambda uri: rayfl.submit("femnist_cyclic", out=uri), "out: .*handles read a submitted run's records on the"),
        (lambda uri: rayfl.submit("femnist_cyclic", folder=uri), "folder: .*handles read a submitted run's records"),
    ],
)
def test_commands_that_need_a_folder_reject_a_uri(call: Any, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        call("s3://bucket/place")


def test_a_run_with_secure_noise_needs_a_folder(store: ObjectStore) -> None:
    secure = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "accountant": "rdp", "secure": True}
    local = {"lr": 0.1, "batch_size": 4, "dp": secure | {"physical_batch_size": 1}}
    phases = [{"name": "p", "rounds": 2, "cohort": 3, "local": local}]
    with pytest.raises(ScenarioError, match=r"`secure` noise .*; name a folder instead of a URI"):
        run(tables(phases=phases), folder=store.uri("secure"))
    assert not (store.folder / "secure" / "metrics.jsonl").exists()


def test_an_analysis_refuses_a_uri(capsys: pytest.CaptureFixture[str]) -> None:
    assert analyse(["gains", "s3://bucket/run?region=x", "--backend", "inline"]) == 1
    assert "copy it to a folder that all nodes can access" in capsys.readouterr().err


def test_a_working_folder_that_was_removed_does_no_harm_to_what_was_published(
    store: ObjectStore, working: Path
) -> None:
    """Nothing is removed from a URI because a local folder is gone."""

    def removes() -> None:
        for folder in working.glob("rayfl-run-*"):
            shutil.rmtree(folder)

    with pytest.raises(ResourceError, match=r"was removed while the run was writing to it"):
        run(
            tables(**SHORT) | {"checkpoint": {"rounds": 1, "on_failure": "stop"}},
            Does(round=3, what=removes),
            folder=store.uri("gone"),
        )
    assert list((store.folder / "gone").glob("checkpoints/*.json"))
    assert run(resume=store.uri("gone")).metrics["round"][-1].as_py() == 4


@pytest.mark.parametrize("name", ["../precious.txt", "/precious.txt", "a/../../precious.txt"])
def test_a_name_at_a_uri_that_leads_out_of_the_working_folder_is_refused(
    name: str, working: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Object stores allow any name."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "scenario.toml").touch()
    remote = RemoteFolder(f"file://{tmp_path}/run")
    listed = [*remote.files(), RemoteFile(name, 0.0)]
    monkeypatch.setattr(RemoteFolder, "files", lambda _: listed)
    monkeypatch.setattr(RemoteFolder, "read", lambda *_: b"theirs")
    with WorkingFolder(Console(quiet=True)) as folder, pytest.raises(ResourceError, match="is not a place inside its"):
        folder.download(remote)
    assert not list(tmp_path.rglob("precious.txt"))
