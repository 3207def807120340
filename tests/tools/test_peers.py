"""The comparison with other simulators: any program that prints a line a round is measured from outside."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rayfl.errors import ResourceError
from tools.peers import __main__ as peers

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
