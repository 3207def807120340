"""Runs that belong to the cluster: submitted, watched and stopped, from this program and from another."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import tomli_w
from ray.cluster_utils import Cluster
from ray.util import list_named_actors
from rich.console import Console

import rayfl
from rayfl.cli.cluster import main
from rayfl.cli.submitted_runs import follow
from rayfl.errors import RayflError, ResourceError, ScenarioError
from rayfl.service.handle import Handle
from tests.backends.ray.addresses import loopback
from tests.callbacks.scene import PLAIN, StopAt, figures, model_of, run, same, tables

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ADDRESS = loopback(2)
CPUS = 2.0
LONG = {**PLAIN, "rounds": 100_000}


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A cluster that this program has joined, and that would outlive it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(Path(rayfl.__file__).parent.parent))
        made = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": int(CPUS),
                "num_gpus": 0,
                "node_ip_address": ADDRESS,
                "object_store_memory": 100 * 2**20,
                "include_dashboard": False,
            },
        )
        try:
            ray.init(address=made.address, _node_ip_address=ADDRESS, log_to_driver=False)
            yield made.address
        finally:
            ray.shutdown()
            made.shutdown()


@pytest.fixture(autouse=True)
def nothing_goes_on(cluster: str) -> Iterator[None]:
    """Ends what a test that failed has left: its run would keep the cluster busy for all that follow."""
    yield
    for actor in list_named_actors(all_namespaces=True):
        if actor["namespace"] == "rayfl":
            ray.kill(ray.get_actor(**actor))


ONE_HOST = {"hosts": 1, "cpus_per_host": CPUS}
"""It takes the whole cluster."""


def submit(out: Path | None, **options: Any) -> Handle:
    """Submits the scene; `scene` in the options changes it."""
    changes = {"resources": ONE_HOST} | options.pop("scene", {})
    where: dict[str, Any] = {} if out is None else {"out": out}
    return rayfl.submit(tables(**changes), console=Console(quiet=True), **where, **options)


def until(condition: Any) -> None:
    """Returns once a condition holds, which others bring about."""
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        ray.wait([ray.put(None)], timeout=0.05)
        time.sleep(0.05)


def nothing_left() -> bool:
    free = ray.available_resources()
    names = [actor for actor in list_named_actors(all_namespaces=True) if actor["namespace"] == "rayfl"]
    return free.get("CPU") == ray.cluster_resources()["CPU"] and not any("group" in kind for kind in free) and not names


def test_a_run_goes_on_without_its_program_and_is_found_by_name_from_another(cluster: str, tmp_path: Path) -> None:
    program = f"""
import rayfl
from rich.console import Console
from tests.callbacks.scene import tables, PLAIN
scene = tables(phases=[{LONG!r}], resources={{"hosts": 1}})
handle = rayfl.submit(scene, name="long", address={cluster!r}, out={str(tmp_path)!r}, console=Console(quiet=True))
print(handle.folder)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    handle = rayfl.attach("long")
    assert str(handle.folder) == done.stdout.strip()
    until(lambda: len(handle.metrics()) >= 2)
    with pytest.raises(ScenarioError, match="name: an active run on this cluster is already called 'long'"):
        submit(tmp_path, name="long")
    handle.stop()
    result = handle.result()
    status = handle.status()
    assert (status["status"], status["stopped"]["callback"]) == ("finished", "handle.stop()")
    rounds = status["stopped"]["round"]
    assert result.metrics["round"].to_pylist() == list(range(1, rounds + 1))
    expected = run(tmp_path / "inline", phases=[{**LONG, "rounds": rounds}])
    assert same(model_of(result), model_of(expected))
    until(nothing_left)
    with pytest.raises(ScenarioError, match="no active run on this cluster is called 'long'"):
        rayfl.attach("long")


def test_a_run_waits_for_others_and_says_so_and_may_be_stopped_meanwhile(cluster: str, tmp_path: Path) -> None:
    first = submit(tmp_path, scene={"phases": [LONG]})
    until(lambda: len(first.metrics()) >= 1)
    second = submit(tmp_path)
    until(lambda: second.status()["status"] == "waiting" and "is busy" in second.status()["reason"])
    third = submit(tmp_path)
    until(lambda: third.status().get("reason") == "1 other run that waits for the cluster comes first")
    third.stop()
    with pytest.raises(RayflError, match="interrupted: stopped before its first round"):
        third.result()
    assert not second.wait(timeout_s=0)
    first.stop()
    assert second.result().metrics.num_rows == 6
    until(nothing_left)


def test_the_commands_of_a_shell_submit_follow_show_and_stop_runs(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shell(command: str, *arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, "--address", cluster], f"rayfl {command}")
        said = capsys.readouterr()
        return status, said.out, said.err

    assert shell("status") == (0, "no submitted run is active on this cluster\n", "")
    scenario = tmp_path / "long.toml"
    scenario.write_text(tomli_w.dumps(tables(phases=[LONG], resources=ONE_HOST)), encoding="utf-8")
    status, out, _ = shell("submit", str(scenario), "--name", "shell", "--out", str(tmp_path))
    handle = rayfl.attach("shell")
    assert (status, out.splitlines()[0]) == (0, f"submitted shell, records: {handle.folder}")
    until(lambda: handle.status().get("committed_rounds", 0) > 0)
    assert handle.status()["phase"] == "plain"
    status, out, _ = shell("status", "shell")
    assert status == 0
    assert re.search(r"shell +\d+ of 100000 +plain .*running", out)
    assert f"records of shell: {handle.folder}" in out
    assert shell("submit", str(scenario), "--name", "shell")[0] == 1
    with monkeypatch.context() as patch:
        patch.setattr("rayfl.cli.submitted_runs.names_under_way", lambda address: ["gone", "shell"])
        assert shell("status")[1].count("records of") == 1

    waiting = submit(tmp_path, name="waiting")
    until(lambda: waiting.status()["status"] == "waiting")
    assert re.search(r"^ *waiting .* waiting: ", shell("status")[1], re.MULTILINE)
    shell("stop", "waiting")
    assert follow(waiting, Console(quiet=True)) == 130

    over = Handle.over

    def interrupted(handle: Handle, wait_s: float) -> bool:
        if wait_s:
            raise KeyboardInterrupt
        return over(handle, wait_s)

    with monkeypatch.context() as patch:
        patch.setattr(Handle, "over", interrupted)
        status, out, _ = shell("attach", "shell")
    assert status == 0
    assert "plain: 100000 rounds, parallel, fedavg" in out
    assert out.splitlines()[-1] == "detached: shell keeps running; end it with `rayfl stop shell`"
    assert handle.status()["status"] == "running"

    assert shell("stop", "shell") == (0, f"shell will end after the current round; records: {handle.folder}\n", "")
    console = Console(file=io.StringIO(), width=120)
    elsewhere = Handle("shell", handle._actor, tmp_path / "on another machine")
    assert follow(elsewhere, console) == 0, "the run itself says how it ended"
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert any("stopped after round" in line for line in lines)
    assert lines[-1] == f"records: {handle.folder}"
    until(nothing_left)
    assert shell("attach", "shell")[0] == 1


def test_a_run_that_fails_says_why_and_leaves_nothing_on_the_cluster(cluster: str, tmp_path: Path) -> None:
    handle = submit(tmp_path, scene={"callbacks": [{"name": "tests.callbacks.scene:Faulty", "hook": "on_round"}]})
    with pytest.raises(RayflError, match=r"callback 'tests\.callbacks\.scene:Faulty': on_round raised KeyError"):
        handle.result()
    console = Console(file=io.StringIO(), width=200)
    assert follow(handle, console) == 1
    assert "failed: callback 'tests.callbacks.scene:Faulty': on_round raised" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "in _raise" in (handle.folder / "run.log").read_text()
    until(nothing_left)


def test_a_run_without_restarts_whose_process_is_killed_leaves_nothing_and_is_resumed_from_its_folder(
    cluster: str, tmp_path: Path
) -> None:
    scene = {"phases": [LONG], "checkpoint": {"rounds": 1}, "resources": ONE_HOST | {"restarts": 0}}
    handle = submit(tmp_path, scene=scene, callbacks=[TellsPid])
    until(lambda: list(handle.folder.glob("checkpoints/round-*.json")))
    os.kill(int((handle.folder / "pid").read_text()), signal.SIGKILL)
    with pytest.raises(ResourceError, match=r"its process was killed or .*; continue with `rayfl resume /"):
        handle.result()
    console = Console(file=io.StringIO(), width=200)
    assert follow(handle, console) == 1
    assert f"it was killed, or its machine went down; continue with `rayfl resume {handle.folder}`" in (
        console.file.getvalue()  # type: ignore[attr-defined]
    )
    reached = len(handle.metrics())
    assert reached >= 1
    until(nothing_left)
    less = {"phases.plain.rounds": reached + 2}
    resumed = rayfl.run(resume=handle.folder, backend="inline", overrides=less, console=Console(quiet=True))
    expected = run(tmp_path / "inline", phases=[{**LONG, "rounds": reached + 2}])
    assert same(model_of(resumed), model_of(expected))
    assert figures(resumed) == figures(expected)


def test_a_run_may_be_stopped_while_the_scenario_that_it_starts_from_is_run(cluster: str, tmp_path: Path) -> None:
    first = tmp_path / "first.toml"
    first.write_text(tomli_w.dumps(tables(phases=[LONG])), encoding="utf-8")
    kept = tmp_path / "starts"
    handle = submit(tmp_path, scene={"start": {"scenario": str(first)}}, starts=kept)
    until(lambda: any(path.read_text() for path in kept.glob("*/metrics.jsonl")))
    handle.stop()
    with pytest.raises(RayflError, match="interrupted: stopped before its first round"):
        handle.result()
    until(nothing_left)


def test_callbacks_of_the_program_go_with_a_run_and_its_centralised_counterpart_can_be_run(
    cluster: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"centralise": True, "callbacks": [StopAt(round=2)]}
    result = submit(tmp_path, **options).result()
    assert result.metrics["round"].to_pylist() == [1, 2]
    inline = tmp_path / "inline"
    expected = rayfl.run(tables(), backend="inline", out=inline, console=Console(quiet=True), **options)
    assert same(model_of(result), model_of(expected))
    until(nothing_left)


class TellsPid(rayfl.Callback):
    """Writes down which process the run has."""

    def on_start(self, run: rayfl.RunSoFar) -> None:
        (run.folder / "pid").write_text(str(os.getpid()))


class Large(rayfl.Callback):
    """Too large for Ray to send along with a call, so that it would be lost with the program that made it."""

    content: bytes


def test_a_run_whose_process_is_killed_after_its_program_has_ended_continues_after_its_checkpoint(
    cluster: str, tmp_path: Path
) -> None:
    program = f"""
import rayfl
from rich.console import Console
from tests.callbacks.scene import tables
from tests.service.test_submission import Large, LONG, ONE_HOST
scene = tables(phases=[LONG], resources=ONE_HOST, checkpoint={{"rounds": 5}})
large = Large(name="large", content=bytes(10**6))
rayfl.submit(scene, callbacks=[large], name="killed", address={cluster!r}, out={str(tmp_path)!r},
             console=Console(quiet=True))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    handle = rayfl.attach("killed")
    until(lambda: any(handle.folder.glob("checkpoints/round-*.json")))
    process = handle.status()["process"]["pid"]
    os.kill(process, signal.SIGKILL)
    until(lambda: handle.status()["status"] == "running" and handle.status()["process"]["pid"] != process)
    until(lambda: handle.status()["committed_rounds"] >= 20)
    handle.stop()
    result = handle.result()
    log = (handle.folder / "run.log").read_text()
    assert "the process of the run died, and was restarted" in log
    (after,) = re.findall(r"the run continues after round (\d+)", log)
    assert int(after) >= 5
    rounds = handle.status()["stopped"]["round"]
    assert result.metrics["round"].to_pylist() == list(range(1, rounds + 1))
    assert same(model_of(result), model_of(run(tmp_path / "inline", phases=[{**LONG, "rounds": rounds}])))
    until(nothing_left)
