"""The comparison with other simulators: any program that prints a line a round is measured from outside."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rayfl.errors import ResourceError
from tools.peers import __main__ as peers
from tools.peers import side_by_side

PEER = """
import sys, time
assert sys.argv[1:] == ["100", "10", "6"]
kept = bytearray(40 * 2**20)
print("round 0 is not one")
for number in range(1, {rounds} + 1):
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    print("round", number, flush=True)
"""


def measured(folder: Path, monkeypatch: pytest.MonkeyPatch, rounds: int) -> peers.Row:
    (folder / "peer_rounds.py").write_text(PEER.format(rounds=rounds))
    monkeypatch.setattr(peers, "__file__", str(folder / "__main__.py"))
    return peers.of_peer(sys.executable, "peer_rounds.py", 100, 10, 60)


def test_time_and_memory_of_a_program_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = measured(tmp_path, monkeypatch, rounds=6)
    assert row.round_s >= 0.1
    assert 0.05 <= row.processor_s < 1
    assert row.megabytes > 0


def test_a_program_that_ends_early_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ResourceError, match=r"^4 of 6 rounds within 60 s$"):
        measured(tmp_path, monkeypatch, rounds=4)


def test_systems_that_are_not_named_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peers, "of_rayfl", lambda clients, cohort, hosts, timeout: peers.Row(0.5 / hosts, 0.5, 900))
    assert peers.main(["--cohort", "10", "--clients", "1e5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| rayfl, 1 worker | 1,000 | 10 | 0.5 | 0.5 | 900 |"
    assert lines[-1] == "| rayfl, 2 workers | 100,000 | 10 | 0.25 | 0.5 | 900 |"
    assert len(lines) == 2 + 4


def program(folder: Path, rounds: int) -> list[str]:
    """Prints accuracies of 10, 20, ... % after every fifth round, as the simulators do in their own words."""
    (folder / "program.py").write_text(
        f"""
import os
assert os.environ["SAMPLES"] == "samples.npz"
for number in range(5, {rounds} + 1, 5):
    print(f"fed {{number}}/15 (round {{number}} of 15): test accuracy {{2 * number}}.25 %, test loss 1.5", flush=True)
"""
    )
    return [sys.executable, str(folder / "program.py")]


def test_one_experiment_is_measured_in_any_program_that_says_its_accuracy(tmp_path: Path) -> None:
    row = side_by_side.measured(program(tmp_path, 15), {"SAMPLES": "samples.npz"}, rounds=15)
    assert row.accuracy == 30.25
    assert 0 <= 10 * row.round_s < row.total_s


def test_an_experiment_without_its_last_round_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="no round 15: "):
        side_by_side.measured(program(tmp_path, 10), {"SAMPLES": "samples.npz"}, rounds=15)


def test_the_quickest_run_of_each_system_is_shown_beside_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = iter([30.0, 9.0, 20.0, 12.0])
    monkeypatch.setattr(side_by_side, "write_samples", lambda path: None)
    monkeypatch.setattr(side_by_side, "measured", lambda *_: side_by_side.Row(next(runs), 0.5, 0.75, 1234.0, 85.0))
    assert side_by_side.main(["--repeat", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| rayfl, ray | 20.0 | 0.500 | 0.750 | 1,234 | 85.00 | 30.0, 20.0 |",
        "| rayfl, inline | 9.0 | 0.500 | 0.750 | 1,234 | 85.00 | 9.0, 12.0 |",
    ]


def test_the_others_read_the_samples_that_rayfl_generates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rayfl.data.generated.handwriting import writer_images
    from tools.peers import task

    monkeypatch.setattr(side_by_side, "CLIENTS", 2)
    side_by_side.write_samples(tmp_path / "samples.npz")
    monkeypatch.setenv("SAMPLES", str(tmp_path / "samples.npz"))
    images, labels, is_test = writer_images(0, 1, task.CLASSES)
    x, y = task.samples.__wrapped__(1)
    assert (y.numpy() == labels[~is_test]).all()
    assert (255 * x[:, 0].numpy()).round().astype(int).tolist() == images[~is_test].tolist()
    assert len(task.samples.__wrapped__(None)[1]) >= is_test.sum()
