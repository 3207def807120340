"""What `rayfl.submit` and its command reject before anything begins, without a cluster."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import PrivateAttr
from rich.console import Console

import rayfl
from rayfl.backends.ray.capacity import Room
from rayfl.cli.cluster import main
from rayfl.config.scenario import Scenario
from rayfl.errors import ResourceError, ScenarioError
from rayfl.service.run_actor import MOST_PIECES
from rayfl.service.submission import _restarts
from tests.callbacks.scene import tables


def test_submit_wants_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, complaint in (([], "name a scenario"), (["x", "--keep-momentum"], "has no effect without")):
        with pytest.raises(SystemExit) as ended:
            main(arguments, "rayfl submit")
        assert ended.value.code == 2
        assert complaint in capsys.readouterr().err


class HoldsALock(rayfl.Callback):
    """Cannot be pickled."""

    _lock: Any = PrivateAttr(default_factory=threading.Lock)


def test_a_scenario_that_cannot_run_is_rejected_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def submit(*given: rayfl.Callback, folder: Path | None = None, **scene: Any) -> None:
        where: dict[str, Any] = {"folder": folder} if folder else {"out": tmp_path}
        rayfl.submit(tables(**scene), callbacks=list(given), **where)

    monkeypatch.setattr("rayfl.service.submission.connected", lambda address: None)
    monkeypatch.setattr("rayfl.service.submission.started_cluster", lambda: False)
    monkeypatch.setattr("rayfl.backends.ray.capacity.nodes", lambda: [Room({"CPU": 2.0}, {})])
    with pytest.raises(ScenarioError, match="unknown callback 'early_stoping'"):
        submit(callbacks=["early_stoping"])
    with pytest.raises(ResourceError, match="do not fit on the Ray cluster"):
        submit(resources={"hosts": 3})
    with pytest.raises(ScenarioError, match=r"^resources\.dashboard: has no effect on an existing cluster"):
        submit(resources={"dashboard": True})
    with pytest.raises(ScenarioError, match=r"^callbacks\[0\]: cannot be sent to the cluster \(TypeError"):
        submit(HoldsALock())
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(ResourceError, match="used' already has the records of a run"):
        submit(folder=tmp_path / "used")
    assert [path.name for path in tmp_path.iterdir()] == ["used"]


def test_a_submission_too_large_for_ray_to_keep_is_not_restarted_which_is_said() -> None:
    said = io.StringIO()
    console = Console(file=said, width=1000)
    scenario = Scenario.from_tables(tables())
    assert _restarts(scenario, MOST_PIECES, console) == 3
    assert said.getvalue() == ""
    assert _restarts(scenario, 2 * MOST_PIECES, console) == 0
    assert said.getvalue().startswith(
        "warning: the run's callbacks and own code take 16 MiB, of which Ray keeps at most 8"
    )
    assert said.getvalue().count("\n") == 1
    none = Scenario.from_tables(tables(resources={"restarts": 0}))
    assert _restarts(none, 2 * MOST_PIECES, console) == 0
    assert said.getvalue().count("\n") == 1, "nothing to warn of"
