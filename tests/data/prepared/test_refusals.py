"""What the commands print where prepared data is damaged or preparing cannot go on: one line that says what to do."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tomli_w

from rayfl.__main__ import main as rayfl_command
from rayfl.data.prepared.manifest import INDEX, MANIFEST
from rayfl.data.prepared.progress import PROGRESS
from tests.data.prepared.scenes import LABELS, OWNER, VECTORS, data, prepared, small_fragments
from tests.data.prepared.test_damage import change, flip, forget, outside

FIRST = "train-00000.arrow"


def rows_elsewhere(folder: Path) -> None:
    with pa.ipc.open_file(str(folder / INDEX)) as reader:
        rows = reader.read_all()["rows"].to_pylist()
    outside(folder, {"rows": [*rows[:-1], 2**32 - 1]})


def linked(folder: Path) -> None:
    (folder / FIRST).rename(folder.parent / "elsewhere")
    (folder / FIRST).symlink_to(folder.parent / "elsewhere")


def named(folder: Path) -> None:
    change(folder, lambda content: content["sets"]["train"]["fragments"][0].update(file=f"../it/{FIRST}"))


def changed_value(folder: Path) -> None:
    fragment = json.loads((folder / MANIFEST).read_text())["sets"]["train"]["fragments"][0]
    flip(folder / FIRST, fragment["blocks"][0][1])


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut short": (lambda folder: cut(folder / FIRST), "cut short or replaced? copy the folder again, or prepare it"),
    "a byte": (changed_value, "is damaged: bytes from"),
    "a byte of the labels": (lambda folder: flip(folder / "train-labels.npy", 200), "is damaged: bytes from 0 on"),
    "a byte of the index": (
        lambda folder: flip(folder / INDEX, 200),
        "is damaged: bytes from 0 on have another digest",
    ),
    "missing": (lambda folder: (folder / FIRST).unlink(), f"{FIRST}: cannot be read (No such file or directory)"),
    "no index": (lambda folder: (folder / INDEX).unlink(), f"{INDEX}: cannot be read (No such file or directory)"),
    "index outside": (rows_elsewhere, "which lie outside of it or are not the next; copy the folder again, or prepare"),
    "a link": (linked, "is not a place inside its folder, by a symbolic link out of"),
    "a place above": (named, "is not a place inside its folder; get the file again from whoever wrote it"),
    "manifest cut short": (lambda folder: cut(folder / MANIFEST), f"{MANIFEST}: cannot be read as a manifest"),
    "no manifest": (
        lambda folder: (folder / MANIFEST).unlink(),
        "finish `rayfl data prepare`, or name a prepared folder",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.usefixtures(small_fragments.__name__)
def test_verify_and_a_run_refuse_damage_in_one_line(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared(data("images"), tmp_path / "it")
    hurt, message = DAMAGES[damage]
    hurt(tmp_path / "it")
    for command in (["data", "verify", str(tmp_path / "it")], ["run", str(scenario(tmp_path)), "--backend", "inline"]):
        forget()
        more = ["--out", str(tmp_path / "runs")] if command[0] == "run" else []
        assert rayfl_command([*command, *more]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
        assert message in line


def scenario(folder: Path, **tables: Any) -> Path:
    phase = {"name": "p", "rounds": 1, "cohort": 7, "local": {"lr": 0.1, "batch_size": 4, "epochs": 1}}
    of_data = {"name": "prepared", "options": {"path": str(folder / "it")}, **tables}
    content = {"data": of_data, "model": {"name": "mlp", "hidden": [4]}, "phases": [phase]}
    (folder / "mine.toml").write_text(tomli_w.dumps(content))
    return folder / "mine.toml"


def test_a_run_refuses_the_manifest_of_another_partition_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared(data("vectors", clients=5), tmp_path / "it")
    file = scenario(tmp_path, partition={"name": "dirichlet", "beta": 0.5}, clients=5)
    assert rayfl_command(["run", str(file), "--backend", "inline", "--out", str(tmp_path / "runs")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "was prepared with 'iid'" in line
    assert "leave data.partition out, or prepare the data again" in line


def vectors(folder: Path, sign: int = 1) -> list[str]:
    """The command that prepares a file of vectors, which it writes."""
    np.savez(
        folder / "it.npz", train_x=sign * VECTORS, train_y=LABELS, train_owner=OWNER, test_x=VECTORS, test_y=LABELS
    )
    return ["data", "prepare", "npz_file", str(folder / "it"), f"data.options.path={folder / 'it.npz'}"]


@pytest.mark.slow
def test_a_disk_that_fills_up_meanwhile_is_one_line_and_the_command_goes_on_later(tmp_path: Path) -> None:
    """The limit on the size of a file stands for a full disk, which ends a write in the same way."""
    command = vectors(tmp_path)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))

    full = subprocess.run(
        [sys.executable, "-m", "rayfl", *command], capture_output=True, text=True, check=False, preexec_fn=limited
    )
    assert full.returncode == 1, full.stderr
    (line,) = full.stderr.splitlines()
    assert line.startswith("error: ")
    assert os.strerror(errno.EFBIG) in line
    assert not (tmp_path / "it" / MANIFEST).exists()
    assert rayfl_command(command) == 0


@pytest.mark.usefixtures(small_fragments.__name__)
def test_the_command_refuses_a_source_that_changed_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rayfl_command(vectors(tmp_path)) == 0
    manifest = json.loads((tmp_path / "it" / MANIFEST).read_text())
    (tmp_path / "it" / MANIFEST).unlink()
    facts = {"digest": manifest["digest"]}
    (tmp_path / "it" / PROGRESS).write_text(json.dumps({"facts": facts, "bounds": {}}) + "\n")
    capsys.readouterr()
    assert rayfl_command(vectors(tmp_path, -1)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("the source changed while it was prepared; remove the folder and prepare it again")
