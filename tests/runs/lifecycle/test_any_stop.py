"""Whenever a run is stopped, and on whatever it goes on: the same bits, and every round once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from rayfl.config.scenario import Scenario
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.models.flat import FlatModel
from rayfl.runs.archive import RunArchive
from rayfl.runs.checkpoints import Checkpoints
from rayfl.runs.folder import CONFUSION_FILE, METRICS_FILE
from rayfl.runs.preparation import prepare
from rayfl.runs.records import Records
from rayfl.runs.resume import reopen
from rayfl.runs.run import Run
from tests.callbacks.scene import Notes
from tests.runs.lifecycle.scene import content
from tests.runs.lifecycle.stopping import Moments, StoppedHere, stopping_session

LOCAL = {"epochs": 1, "batch_size": 4, "lr": 0.1}
DP = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "accountant": "rdp"}
KINDS: dict[str, list[dict[str, Any]]] = {
    "stateless": [{"algorithm": "fedavg"}],
    "stateful": [{"algorithm": "scaffold", "eval_model": "all"}],
    "server state, then a relay that keeps state": [
        {"algorithm": "fedadam", "rounds": 2},
        {"algorithm": "moon", "schedule": "relay", "rounds": 2, "cohort": 3, "order": "no_repeat"},
    ],
    "two exchanges": [{"algorithm": "tests.engine.test_same_bits:Drifting"}],
    "state of a round": [{"algorithm": {"name": "fedmeta", "split": "round", "meta_lr": 0.2}, "local": {"lr": 0.3}}],
    "exchanges with the server's samples": [{"algorithm": "coprefl", "local": LOCAL}],
    "a sampler that reads losses": [
        {"cohort": {"sampler": "power_of_choice", "clients": 3, "candidates": 6}, "rounds": 4}
    ],
    "noise for samples": [{"local": LOCAL | {"dp": DP}, "rounds": 2}],
    "noise for clients": [
        {"dp": {"level": "central", "noise_multiplier": 1.0, "clip_norm": {"quantile": 0.5}, "delta": 0.01,
                "accountant": "rdp"},
         "algorithm": {"name": "fedavg", "weighting": "uniform"}, "cohort": {"bernoulli": 0.4}},
    ],
    "parts that an earlier phase trained": [
        {"rounds": 2},
        {"algorithm": "scaffold", "train": ["second"], "rounds": 2},
        {"schedule": "relay", "train": "head", "rounds": 2},
    ],
    "rounds that overlap": [
        {"schedule": "buffered", "concurrency": 4, "buffer": 2, "cohort": 12},
    ],
}  # fmt: skip

QUICK = [
    "stateful",
    "server state, then a relay that keeps state",
    "parts that an earlier phase trained",
    "rounds that overlap",
]
"""Between them: states of clients and of the server, handovers, constants, relays, and rounds under way."""

DEVICES = {"rounds that overlap": {"participation": {"samples_per_s": {"lognormal": [10.0, 1.0]}, "dropout": 0.2}}}


@cache
def job_of(kind: str) -> tuple[RunPlan, FlatModel]:
    phases = [{"name": f"p{n}", "rounds": 3, "cohort": 4, "local": LOCAL} | more for n, more in enumerate(KINDS[kind])]
    tables = {
        "name": "stopped",
        "data": {"name": "tests.algorithms.scene:people", "server_share": 0.1},
        "model": {"name": "tests.algorithms.scene:TanhNet", "dropout": 0.3},
        "phases": phases,
        "resources": {"relay": "spread"},
        "evaluation": {"metrics": ["accuracy", "recall"]},
    } | DEVICES.get(kind, {})
    return prepare(Scenario.from_tables(tables), Path("no-data-here"))


@dataclass(frozen=True)
class Attempt:
    """How a run goes on, up to a stop.

    Attributes:
        hosts: How many.
        ahead: Rounds submitted ahead.
        every: Rounds between checkpoints.
        in_memory: Whether client states may be in memory.
        settles: Whether somebody looks at every round before the next.
        permille: How far it gets, of the moments of a whole run; it may come to its end before.
    """

    hosts: int
    ahead: int
    every: int
    in_memory: bool
    settles: bool
    permille: int


attempts = st.builds(
    Attempt,
    hosts=st.integers(1, 4),
    ahead=st.sampled_from([0, 2]),
    every=st.integers(1, 3),
    in_memory=st.booleans(),
    settles=st.booleans(),
    permille=st.integers(1, 1000),
)


def carried_on(folder: Path, kind: str, attempt: Attempt, moments: Moments) -> None:
    """Begins a run, or goes on with it, as `rayfl.run` does."""
    job, model = job_of(kind)
    resources = job.scenario.resources.model_copy(update={"client_state_gb": float(attempt.in_memory)})
    checkpoint = job.scenario.checkpoint.model_copy(update={"rounds": attempt.every})
    scenario = job.scenario.model_copy(update={"resources": resources, "checkpoint": checkpoint})
    job, console = replace(job, scenario=scenario, settles=attempt.settles), Console(quiet=True)
    reopened = reopen(folder, job, console) if (folder / "status.json").exists() else None
    state = reopened.state if reopened else None
    with (
        reopened.records if reopened else Records.within(folder) as records,
        Run(job, model, records, [Notes()], console, state, Checkpoints(folder, checkpoint.keep)) as run,
    ):
        session = stopping_session(job, attempt.hosts, moments, attempt.ahead)
        run.connect(session, "inline", reopened.restore if reopened else None)
        for _ in run.follow():
            pass
        run.finish()


def left(folder: Path) -> dict[str, Any]:
    """The files that a run leaves, without times; metrics as in the file, line by line."""
    lines = [json.loads(line) for line in (folder / METRICS_FILE).read_text().splitlines()]
    assert lines == RunArchive(folder).rows
    files = {name: folder / name for name in ("privacy.json", CONFUSION_FILE)}
    return {
        "metrics": [{key: value for key, value in line.items() if key != "seconds"} for line in lines],
        "model": content(folder / "model.safetensors"),
    } | {name: path.read_text() for name, path in files.items() if path.exists()}


WHOLE = Attempt(hosts=1, ahead=0, every=1, in_memory=True, settles=False, permille=1000)


@cache
def undisturbed(kind: str) -> tuple[dict[str, Any], int]:
    """What a run leaves that nothing stopped, and the moments that it had."""
    with TemporaryDirectory() as folder:
        moments = Moments()
        carried_on(Path(folder), kind, WHOLE, moments)
        return left(Path(folder)), moments.passed


@pytest.mark.parametrize(
    "kind", [*QUICK, *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind not in QUICK)]
)
@pytest.mark.takes("four runs that are stopped up to three times, of each kind")
@settings(max_examples=4)
@given(stopped=st.lists(attempts, min_size=1, max_size=3), last=attempts)
def test_a_run_that_was_stopped_at_any_moment_leaves_what_an_undisturbed_one_does(
    kind: str, stopped: Sequence[Attempt], last: Attempt
) -> None:
    expected, moments = undisturbed(kind)
    with TemporaryDirectory() as name:
        folder = Path(name)
        for attempt in stopped:
            try:
                carried_on(folder, kind, attempt, Moments(1 + attempt.permille * moments // 1000))
                break
            except StoppedHere:
                pass
        else:
            carried_on(folder, kind, last, Moments())
        assert left(folder) == expected
    assert (CONFUSION_FILE in expected) != job_of(kind)[0].scenario.hides
    rounds = [row["round"] for row in expected["metrics"]]
    assert rounds == list(range(1, len(rounds) + 1))
