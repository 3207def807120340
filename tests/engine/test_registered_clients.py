"""Registered clients cost a few bytes and microseconds each, whatever draws cohorts and holds out samples."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

KINDS = "fixed,by_size,bernoulli,held_out"


def runs(kinds: str, *clients: int) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.engine.many_clients", kinds, *map(str, clients)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.takes("a process of its own, whose memory is measured, and 200 000 clients that hold out samples")
def test_two_hundred_thousand_clients_cost_a_few_bytes_and_microseconds_each() -> None:
    few, many = 20_000, 200_000
    found = runs(KINDS, few, many)
    assert [run["rounds"] for run in found] == [2] * 8
    for first, second in zip(found[::2], found[1::2], strict=True):
        slope = {what: (second[what] - first[what]) / (many - few) for what in ("bytes", "prepare_s", "run_s")}
        assert slope["bytes"] < (650 if second["kind"] == "held_out" else 230), second
        assert slope["prepare_s"] < 40e-6, second
        assert slope["run_s"] < 5e-6, second


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fixed", "by_size", "bernoulli"])
def test_ten_million_clients_run_in_two_gigabytes(kind: str) -> None:
    _, found = runs(kind, 20_000, 10_000_000)
    assert found["rounds"] == 2
    assert found["bytes"] < 150 * 10_000_000
    assert found["prepare_s"] < 60
    assert found["run_s"] < 5
