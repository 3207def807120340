"""No password of a URI reaches what a run prints and records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import rayfl
from rayfl.__main__ import main
from rayfl.callbacks.callback import Callback, RunSoFar
from rayfl.errors import ScenarioError
from rayfl.passwords import without_passwords
from tests.callbacks.scene import PLAIN, tables

SECRET = "hunter2"
URI = f"postgresql://me:{SECRET}@db.example:5432/mlflow"


class Reports(Callback):
    """Fails as a tracker does whose server is away: its error has the URI."""

    uri: str = ""

    def on_round(self, run: RunSoFar) -> None:
        raise ConnectionError(f"request to {self.uri or URI} failed")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (URI, "postgresql://…@db.example:5432/mlflow"),
        ("see http://:pw@h/a and x://u:p%40@i", "see http://…@h/a and x://…@i"),
        ("http://me@host/a:b@c", "http://me@host/a:b@c"),
        ("http://host:80/x@y", "http://host:80/x@y"),
        ("me:pw@host", "me:pw@host"),
        ("x://u:pa/ss@h/db and x://u:p@ss@h/db", "x://…@h/db and x://…@h/db"),
        ("https://TOKEN:@host", "https://…@host"),
        ("https://glpat-abc@host/x", "https://…@host/x"),
        ("git+https://0123456789abcdef0123@host/x", "git+https://…@host/x"),
        ("x://h/db?user=u&password=a;b&sslmode=on", "x://h/db?user=u&password=…&sslmode=on"),
        (
            "https://h/x?apiKey=a and https://h/x?X-Amz-Signature=b",
            "https://h/x?apiKey=… and https://h/x?X-Amz-Signature=…",
        ),
        ("oci://repo:tag@sha256:00", "oci://repo:tag@sha256:00"),
        ("oci://me:pw@repo:tag@sha256:00", "oci://…@repo:tag@sha256:00"),
        ("abfs://results-of-the-training@account/x", "abfs://results-of-the-training@account/x"),
        ("mongodb://a:1,b:2/db?mail=x@y http://[::1]:80/x@y", "mongodb://a:1,b:2/db?mail=x@y http://[::1]:80/x@y"),
        ("file:///C:/x@y file://C:/x@y", "file:///C:/x@y file://C:/x@y"),
        (
            "hf://x?tokenizer=a&max_tokens=9&keypoints=17&password=",
            "hf://x?tokenizer=a&max_tokens=9&keypoints=17&password=",
        ),
        ("what?password=secret", "what?password=secret"),
    ],
)
def test_only_credentials_of_a_uri_are_left_out(text: str, expected: str) -> None:
    assert without_passwords(text) == expected


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"callbacks": [{"name": "mlflow", "tracking_uri": URI}]}, "callbacks.0.tracking_uri"),
        ({"callbacks": [{"name": "mlflow", "no_such": {"deep": [URI]}}]}, "callbacks.0.no_such.deep.0"),
        ({"seed": URI}, "seed"),
        ({"seed": f"postgresql://h/db?user=u&password={SECRET}"}, "seed"),
        ({URI: 1}, "postgresql://…@db.example:5432/mlflow"),
        ({"start": {"scenario": "x", "overrides": {"data.options.url": URI}}}, "start.overrides.data.options.url"),
    ],
)
def test_a_scenario_with_a_password_is_rejected_by_its_key(changes: dict[str, Any], key: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as caught:
        rayfl.run(tables() | changes, backend="inline", out=tmp_path, console=Console(quiet=True))
    assert f"{key}: has a URI with a password, but scenarios are printed and recorded: leave out" in str(caught.value)
    assert "also when the run is resumed, in the environment" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_grid_with_a_password_is_rejected_by_its_key() -> None:
    cell = {"callbacks": [{"name": "mlflow", "tracking_uri": URI}]}
    with pytest.raises(
        ScenarioError, match=r"^rows\.a\.callbacks\.0\.tracking_uri: has a URI with a password"
    ) as caught:
        rayfl.grid({"scenario": "femnist_fedavg", "rows": {"a": cell}, "columns": {"b": {}}}, backend="inline")
    assert SECRET not in str(caught.value)


def test_an_error_of_a_tracker_reaches_neither_records_nor_console_with_its_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(width=1000)
    given: Any = {"backend": "inline", "out": tmp_path, "console": console}
    with pytest.raises(rayfl.RayflError, match=r"request to postgresql://…@db\.example") as caught:
        rayfl.run(tables(phases=[PLAIN]), callbacks=[Reports(name="tracker", uri=URI)], **given)
    assert SECRET not in str(caught.value)
    assert SECRET not in capsys.readouterr().out
    recorded = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"status.json", "scenario.toml", "environment.json"} <= {path.name for path in recorded}
    assert not [path for path in recorded if SECRET.encode() in path.read_bytes()]


def test_a_run_from_before_that_recorded_a_password_goes_on_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command tells what to take out of scenario.toml; it is no result that depends on it."""
    with pytest.raises(rayfl.RayflError, match="request to"):
        rayfl.run(
            tables(phases=[PLAIN]), callbacks=[Reports(name="tracker")], backend="inline", folder=tmp_path,
            console=Console(quiet=True),
        )  # fmt: skip
    path = tmp_path / "scenario.toml"
    clean = path.read_text()
    callbacks = f'callbacks = [{{ name = "tests.test_passwords:Reports", uri = "{URI}" }}]'
    path.write_text(clean.replace("callbacks = []", callbacks))
    assert main(["resume", str(tmp_path), "--backend", "inline"]) == 1
    said = capsys.readouterr().err
    assert "callbacks.0.uri: has a URI with a password" in said
    assert SECRET not in said
    path.write_text(clean)
    assert main(["resume", str(tmp_path), "--backend", "inline"]) == 0
