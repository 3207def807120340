"""The events of one recorded run, shown again to those who follow runs: they are plain data, so nothing trains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from rich.console import Console

from rayfl.backends.inline import inline_session
from rayfl.callbacks.callback import Callback
from rayfl.config.scenario import Scenario
from rayfl.engine.events import Event, RoundDone, RoundSettled
from rayfl.engine.plan.headline import Headline
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.runs.follower import Follower
from rayfl.runs.preparation import prepare
from tests.callbacks.scene import tables


@cache
def recorded() -> tuple[RunPlan, tuple[Event, ...]]:
    """A relay of two rounds, then four of FedAvg; each is evaluated, and settles."""
    job, _ = prepare(Scenario.from_tables(tables()), Path("no-data-here"))
    job = replace(job, settles=True)
    with inline_session(job) as session:
        return job, tuple(session.events())


def replayed(
    folder: Path,
    *callbacks: Callback,
    events: Iterable[Event] | None = None,
    headlines: Mapping[str, Headline] | None = None,
) -> list[Event]:
    """Shows the recorded run to callbacks until one of them stops it; its model is the number of the round.

    Args:
        folder: The run's.
        callbacks: In their order.
        events: Instead of the recorded ones.
        headlines: Instead of the recorded run's.

    Returns:
        The events as the callbacks leave them.
    """
    job, recording = recorded()
    left: list[Event] = []

    def model() -> dict[str, torch.Tensor]:
        *_, done = (event for event in left if isinstance(event, RoundDone))
        return {"round": torch.tensor(done.round)}

    follower = Follower(callbacks, job.scenario, headlines or job.headlines, folder, Console(quiet=True), model)
    follower.start()
    for event in recording if events is None else events:
        left.append(event)  # the model is asked for meanwhile
        left[-1] = follower.add(event)
        if isinstance(event, RoundSettled) and follower.stopped:
            break
    follower.end("finished")
    return left
