"""From [start] to the model that a run begins with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from rayfl.config.loading import load_scenario
from rayfl.config.overrides import table_overrides
from rayfl.config.scenario import Scenario
from rayfl.config.start import Start
from rayfl.engine.job import Job
from rayfl.engine.workload import InitialModel
from rayfl.errors import ScenarioError
from rayfl.models.flat import FlatModel
from rayfl.models.transfer import Transfer, transfer
from rayfl.start.fingerprint import fingerprint
from rayfl.start.from_scenario import run_once
from rayfl.start.source import Source, from_file, from_library, from_run, origin_digest

Prepare = Callable[[Scenario], tuple[Job, FlatModel]]
Run = Callable[[Scenario, Path], None]


def scenario_to_start_from(start: Start) -> Scenario | None:
    """The scenario whose model is the start, as it will run; None for other kinds.

    Raises:
        ScenarioError: It is wrong, or starts from itself.
    """
    return _loaded(start, ()) if start.scenario is not None else None


def find_source(start: Start, model: FlatModel, folder: Path, prepare: Prepare, run: Run) -> Source:
    """Finds the weights that a scenario starts from; where they are another scenario's result, runs it if need be.

    Args:
        start: The scenario's [start].
        model: The model that is to start from them.
        folder: Where models of scenarios are kept.
        prepare: Loads a scenario's data and builds its network.
        run: Runs a scenario, with its records in a folder.

    Raises:
        ScenarioError: The scenario to run is wrong, or its model does not fit.
        DataError: A file is missing, or holds something else.
    """
    if start.file is not None:
        return from_file(Path(start.file).expanduser())
    if start.run is not None:
        return from_run(Path(start.run).expanduser())
    if start.weights is not None:
        return from_library(start.weights)
    scenario = scenario_to_start_from(start)
    assert scenario is not None
    job, theirs = prepare(scenario)
    transfer(theirs.state_dict(), model, start.head, start.ignore, f"start.scenario '{start.scenario}'")
    return run_once(scenario, _digest(job, prepare), folder, lambda kept: run(scenario, kept))


def start_from(job: Job, model: FlatModel, source: Source) -> tuple[Job, Transfer]:
    """The same job with a model that begins with other weights; they are loaded into `model` too.

    Raises:
        DataError: Names that no rule covers are only on one side, or differ in shape.
        ScenarioError: A rule matches nothing, or nothing is left to take.
    """
    start = job.scenario.start
    assert start is not None
    taken = transfer(source.state, model, start.head, start.ignore, source.where)
    _check_constants(taken, model, source.where)
    model.load(taken.vector)
    workload = replace(job.result, initial=InitialModel(taken.vector.numpy(), model.layout))
    origin = {
        **source.origin,
        "taken": list(taken.taken),
        "fresh": list(taken.fresh),
        "not_used": list(taken.unmatched),
    }
    return replace(job, workloads=[workload] * len(job.workloads), origin=origin), taken


def _check_constants(taken: Transfer, model: FlatModel, where: str) -> None:
    """Integer buffers are no part of the vector: hosts have those that the network is built with."""
    own = model.state_dict()
    for name, value in taken.constants.items():
        if not name.endswith("num_batches_tracked") and not torch.equal(own[name], value.cpu()):
            raise ScenarioError(
                f"{where}: '{name}' holds integers that differ from this model's, and rayfl does not take integers "
                "over; add it to start.ignore if they may differ"
            )


def _digest(job: Job, prepare: Prepare) -> str:
    """Of everything that a scenario's result depends on, its own start included."""
    start = job.scenario.start
    if start is None:
        return fingerprint(job)
    before = scenario_to_start_from(start)
    if before is not None:
        return fingerprint(job, _digest(prepare(before)[0], prepare))
    if start.file is not None:
        origin = from_file(Path(start.file).expanduser()).origin
    elif start.run is not None:
        origin = from_run(Path(start.run).expanduser()).origin
    else:
        origin = {"name": start.weights or ""}
    return fingerprint(job, origin_digest(origin))


def _loaded(start: Start, chain: tuple[str, ...]) -> Scenario:
    assert start.scenario is not None
    here = f"{start.scenario} {start.overrides} {start.quick}"
    if here in chain:
        raise ScenarioError(f"start.scenario: '{start.scenario}' starts from itself")
    try:
        scenario = load_scenario(start.scenario, list(table_overrides(start.overrides)), start.quick)
    except ScenarioError as error:
        raise ScenarioError(f"start.scenario: {error}") from None
    if scenario.start is not None and scenario.start.scenario is not None:
        _loaded(scenario.start, (*chain, here))
    return scenario
