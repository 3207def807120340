"""Ray that is started while a run is prepared, and its end where the preparation fails; no test here starts Ray."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private import worker as ray_worker
from rich.console import Console

import rayfl
from rayfl.backends.ray.kept_cluster import CONNECTION, connecting, wait_for_given_up
from rayfl.backends.ray.log import RayLog
from rayfl.errors import ResourceError, ScenarioError

PHASE = {"name": "p", "rounds": 1, "cohort": 2, "local": {"lr": 0.5, "batch_size": 8}}


class PretendRay:
    """Notes what is asked of it, and in which thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.thread: threading.Thread | None = None
        self.begun, self.may_connect = threading.Event(), threading.Event()
        self.may_connect.set()
        self.fails: Exception | None = None
        monkeypatch.setattr("rayfl.backends.ray.connection.connect", self.connect)
        monkeypatch.setattr("rayfl.backends.ray.actors.KeptActors.begin", lambda actors, scenario: None)
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "shutdown", lambda: self.asked.append("shutdown"))

    def connect(self, address: str | None, dashboard: bool) -> None:
        self.thread = threading.current_thread()
        self.begun.set()
        assert self.may_connect.wait(60)
        if self.fails:
            raise self.fails
        self.asked.append("connect")


@pytest.fixture
def pretend_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendRay]:
    pretended = PretendRay(monkeypatch)
    yield pretended
    wait_for_given_up()
    assert pretended.thread is None or not pretended.thread.is_alive()
    assert CONNECTION.acquire(blocking=False)
    CONNECTION.release()


def run(out: Path, **changes: Any) -> None:
    data = {"name": "tests.user_code:vectors", "clients": 4}
    tables = {"name": "tiny", "data": data, "model": "tests.user_code:Linear", "phases": [PHASE]} | changes
    rayfl.run(tables, out=out, console=Console(quiet=True))


def test_errors_are_reported_while_ray_still_starts_and_the_next_connection_waits_for_its_end(
    pretend_ray: PretendRay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend_ray.may_connect.clear()

    def prepare(*_: Any) -> None:
        assert pretend_ray.begun.wait(60)
        assert pretend_ray.asked == []
        raise ScenarioError("data: is wrong")

    monkeypatch.setattr("rayfl.runs.preparation.Prepared.plan", prepare)
    with pytest.raises(ScenarioError, match=r"^data: is wrong$"):
        run(tmp_path)
    assert pretend_ray.asked == []
    assert pretend_ray.thread is not threading.main_thread()
    assert not list(tmp_path.iterdir())
    pretend_ray.may_connect.set()
    with connecting(None, dashboard=False):
        assert pretend_ray.asked[:2] == ["connect", "shutdown"]
    assert pretend_ray.asked == ["connect", "shutdown"] * 2


def test_python_ends_ray_that_was_given_up_before_it_exits() -> None:
    program = """
import sys, threading, types
from rayfl.backends.ray import kept_cluster as early_connection
told = threading.Event()
sys.modules["ray"] = ray = types.ModuleType("ray")
ray.is_initialized, ray.shutdown = lambda: False, lambda: print("ended")
log = types.ModuleType("rayfl.backends.ray.log")
log.RayLog, log.ray_text_in = lambda: None, lambda log: early_connection.threading.Lock()
connection = types.ModuleType("rayfl.backends.ray.connection")
connection.connect = lambda address, dashboard: print("made" if told.wait(60) else "never")
sys.modules |= {"rayfl.backends.ray.log": log, "rayfl.backends.ray.connection": connection}
try:
    with early_connection.connecting(None, False):
        raise ValueError
except ValueError:
    print("told")
    told.set()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["told", "made", "ended"], "")


def test_nothing_is_prepared_while_ray_is_still_being_imported(
    pretend_ray: PretendRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, prepares = list[str](), threading.Event()

    class SlowModule(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name != "connect":
                raise AttributeError(name)
            prepares.wait(0.2)
            order.append("imported")
            return pretend_ray.connect

    monkeypatch.setitem(sys.modules, "rayfl.backends.ray.connection", SlowModule("connection"))
    with connecting(None, dashboard=False):
        order.append("prepares")
        prepares.set()
    assert order == ["imported", "prepares"]


def test_a_failed_import_of_ray_is_an_error_of_the_connection(
    pretend_ray: PretendRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("rayfl.backends.ray.connection.connect")
    with connecting(None, dashboard=False) as early:
        assert early is not None
        with pytest.raises(ImportError):
            early.wait()
    assert pretend_ray.asked == []


def test_a_connection_that_is_made_is_closed_before_an_error_is_told(
    pretend_ray: PretendRay,
) -> None:
    def fail_late() -> None:
        with connecting(None, dashboard=False) as early:
            assert early is not None
            early.wait()
            raise ScenarioError("data: is wrong")

    with pytest.raises(ScenarioError):
        fail_late()
    assert pretend_ray.asked == ["connect", "shutdown"]


def test_ctrl_c_while_the_run_is_prepared_ends_ray(
    pretend_ray: PretendRay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def press_ctrl_c(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rayfl.runs.preparation.Prepared.plan", press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    wait_for_given_up()
    assert pretend_ray.asked == ["connect", "shutdown"]


def test_errors_in_the_scenario_are_reported_before_those_of_ray(pretend_ray: PretendRay, tmp_path: Path) -> None:
    pretend_ray.fails = ResourceError("no Ray cluster to work with")
    with pytest.raises(ScenarioError, match="nothing_like_it"):
        run(tmp_path, model="nothing_like_it")
    with pytest.raises(ResourceError, match=r"^no Ray cluster to work with$"):
        run(tmp_path)
    assert pretend_ray.asked == []


def test_the_thread_that_started_ray_lives_as_long_as_ray_does(pretend_ray: PretendRay) -> None:
    """Linux ends what Ray has started along with that thread."""
    with connecting(None, dashboard=False) as early:
        assert early is not None
        early.wait()
        assert pretend_ray.thread is not None
        assert pretend_ray.thread.is_alive()
        assert pretend_ray.asked == ["connect"]
    assert pretend_ray.asked == ["connect", "shutdown"]


def test_actors_begin_where_ray_was_started_and_end_before_it(pretend_ray: PretendRay) -> None:
    def begin() -> Callable[[], None]:
        pretend_ray.asked.append(f"begin in {threading.current_thread().name}")
        return lambda: pretend_ray.asked.append("end")

    with connecting(None, False, begin) as early:
        assert early is not None
        early.wait()
    assert pretend_ray.asked == ["connect", "begin in rayfl connection to Ray", "end", "shutdown"]


def test_an_error_at_their_begin_ends_ray_and_reaches_the_run(pretend_ray: PretendRay) -> None:
    def begin() -> Callable[[], None]:
        raise ResourceError("no room")

    with connecting(None, False, begin) as early:
        assert early is not None
        with pytest.raises(ResourceError, match="no room"):
            early.wait()
    assert pretend_ray.asked == ["connect", "shutdown"]


def test_a_second_run_in_another_thread_does_not_connect_early(pretend_ray: PretendRay) -> None:
    seen: list[object] = ["nothing"]

    def second() -> None:
        with connecting(None, dashboard=False) as early:
            seen[0] = early

    with connecting(None, dashboard=False):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert seen == [None]
    assert pretend_ray.asked == ["connect", "shutdown"]


def test_a_connected_program_does_not_connect_again(pretend_ray: PretendRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    with connecting(None, dashboard=False) as early:
        assert early is None
    assert pretend_ray.asked == []


def test_early_output_of_ray_is_in_the_runs_log(
    pretend_ray: PretendRay, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with connecting(None, dashboard=False) as early:
        assert early is not None
        _, log = early.wait()
        say("the disk is nearly full")
        log.begin(tmp_path / "ray.log")
        say("the disk is full")
    lines = (tmp_path / "ray.log").read_text().splitlines()
    assert [line.partition(") ")[2] for line in lines] == ["the disk is nearly full", "the disk is full"]
    assert capfd.readouterr() == ("", "")


def say(text: str) -> None:
    ray_worker.print_to_stdstream({"pid": "raylet", "lines": [text], "is_err": True}, ignore_prefix=False)


def test_a_log_that_never_gets_a_file_makes_none(tmp_path: Path) -> None:
    RayLog().write("nobody reads this")
    RayLog().begin(tmp_path / "ray.log")
    assert not list(tmp_path.iterdir())
