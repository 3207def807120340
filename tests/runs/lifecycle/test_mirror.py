"""What is published of a folder, and in which order."""

from __future__ import annotations

import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rayfl.errors import ResourceError
from rayfl.remote_folder import RemoteFolder
from rayfl.runs.working_folder import Mirror


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("{}\n")
    (folder / "checkpoints" / "round-000000001.json").write_text("1")
    (folder / ".clients.parquet.0123.0").write_text("part")
    (folder / ".clients.parquet.0123").write_text("being written")
    (folder / ".status.json.0123").write_text("being written")
    return folder


@pytest.fixture
def there(tmp_path: Path) -> Path:
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "others.txt").write_text("left alone")
    return folder


def mirror(here: Path, there: Path) -> Mirror:
    return Mirror(here, RemoteFolder(f"file://{there}"), Console(width=1000))


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_files_come_and_go_but_for_temporary_ones_and_those_of_others(here: Path, there: Path) -> None:
    published = mirror(here, there)
    published.publish()
    first = {"metrics.jsonl", "checkpoints/round-000000001.json", ".clients.parquet.0123.0", "others.txt"}
    assert names(there) == first
    (here / ".clients.parquet.0123.0").unlink()
    (here / "metrics.jsonl").write_text("{}\n{}\n")
    published.publish()
    assert names(there) == first - {".clients.parquet.0123.0"}
    assert (there / "metrics.jsonl").read_text() == "{}\n{}\n"


def test_unchanged_files_are_not_written_again_and_manifests_come_last(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    write = RemoteFolder.write

    def noted(self: RemoteFolder, path: str, content: Any) -> None:
        order.append(path)
        write(self, path, content)

    monkeypatch.setattr(RemoteFolder, "write", noted)
    published = mirror(here, there)
    for number in range(2, 5):
        (here / "checkpoints" / f"round-{number:09}.json").write_text("1")
    (here / "zzz.txt").write_text("by name the last")
    published.publish()
    assert [name.startswith("checkpoints/") for name in order] == [False] * 3 + [True] * 4
    published.publish()
    assert len(order) == 7


def test_a_manifest_is_not_published_where_something_before_it_cannot_be(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (there / "metrics.jsonl").mkdir()
    (there / "metrics.jsonl" / "in_the_way").touch()
    with pytest.raises(ResourceError, match=r"cannot write 'metrics\.jsonl' in 'file://"):
        mirror(here, there).publish()
    assert not (there / "checkpoints").exists()
    assert not [path for path in there.rglob(".metrics*") if path.is_file()]


def test_a_folder_that_is_gone_removes_nothing(here: Path, there: Path) -> None:
    published = mirror(here, there)
    published.publish()
    before = names(there)
    shutil.rmtree(here)
    with pytest.raises(ResourceError, match="was removed while the run was writing to it"):
        published.publish()
    here.mkdir()
    (here / "metrics.jsonl").write_text("{}\n")
    published.publish()
    assert names(there) == before


def test_changes_are_published_meanwhile_and_an_outage_is_told_once(
    here: Path, there: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rayfl.runs.working_folder.PUBLISHED_EVERY_S", 0.01)
    monkeypatch.setattr("rayfl.runs.working_folder.LONGEST_PAUSE_S", 0.01)
    attempts, failed_twice, published_again = [], threading.Event(), threading.Event()
    publish = Mirror.publish

    def fails_twice(self: Mirror) -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise ResourceError("cannot write: nobody answers")
        failed_twice.set()
        publish(self)
        if len(attempts) > 3:
            published_again.set()

    monkeypatch.setattr(Mirror, "publish", fails_twice)
    with mirror(here, there):
        assert failed_twice.wait(30)
        assert published_again.wait(30)
    told = capsys.readouterr().out
    assert told.count("warning: cannot write: nobody answers; the run continues, with its records in") == 1
    assert told.count("the run's records are at file://") == 1
    assert "metrics.jsonl" in names(there)


def test_a_remote_folder_is_sent_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-tests")
    folder = RemoteFolder("s3://bucket/runs/?region=x") / "run" / "checkpoints"
    assert str(folder) == "s3://bucket/runs/run/checkpoints?region=x"
    sent = pickle.dumps(folder)
    assert b"secret-of-the-tests" not in sent
    assert pickle.loads(sent) == folder  # noqa: S301 - our own bytes
