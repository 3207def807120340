"""Loads the weights that [start] names into a run's initial model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rayfl.config.scenario import Scenario, Start
from rayfl.engine.initial_model import constants_handed_over, flat_model, load_initial
from rayfl.engine.plan.private_network_checks import check_discrete_buffers
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.models.flat import FlatModel
from rayfl.models.transfer import Transfer, renamed, transfer
from rayfl.runs.environment import fingerprint
from rayfl.runs.preparation import Prepared
from rayfl.runs.resolution import resolve
from rayfl.runs.resume import How
from rayfl.runs.start_chain import scenario_to_start_from
from rayfl.runs.status import readable_status
from rayfl.runs.weight_sources import Source, from_file, from_library, from_named_run, origin_digest, run_once

Prepare = Callable[[Scenario], tuple[RunPlan, FlatModel]]
Run = Callable[[Scenario, Path, How], None]


def find_source(
    start: Start, model: FlatModel, folder: Path, prepared: Prepared, run: Run, say: Callable[[str], None]
) -> Source:
    """Finds the weights that a scenario starts from; runs another scenario for them if necessary.

    A scenario that has run before is identified by its data, without building its networks again.

    Args:
        start: The scenario's [start].
        model: The model to start from these weights, that of the first phase.
        folder: Holds the runs of scenarios that others start from.
        prepared: Loads data, and builds the networks of a scenario that has to run.
        run: Runs a scenario with its records in a folder, or resumes the run there.
        say: Receives remarks for the user.

    Raises:
        ScenarioError: The scenario to run is invalid, or its model does not fit.
        DataError: A file is missing, or does not hold weights.
    """
    scenario = scenario_to_start_from(start)
    if scenario is None:
        return given(start)
    digest = _digest(scenario, prepared)
    run_folder, where = folder / f"{scenario.name}-{digest[:16]}", f"start.scenario '{start.scenario}'"
    status = readable_status(run_folder)
    if status is None or status["status"] != "finished":
        _transfer(start, prepared.plan(scenario)[1].state_dict(), model, where)
    source = run_once(scenario, digest, run_folder, lambda how: run(scenario, run_folder, how), say)
    _transfer(start, source.state, model, where)
    return source


def check_start(start: Start, model: FlatModel, prepare: Prepare) -> None:
    """Checks that a start's weights exist and fit the model, or will fit once another scenario has run.

    Args:
        start: The scenario's [start].
        model: The model to start from these weights.
        prepare: Loads a scenario's data and builds its network.

    Raises:
        ScenarioError: A scenario to run is invalid, or its model does not fit.
        DataError: A file is missing, or does not hold weights.
    """
    scenario = scenario_to_start_from(start)
    if scenario is None:
        source = given(start)
        _transfer(start, source.state, model, source.where)
        return
    run_plan, theirs = prepare(scenario)
    _transfer(start, theirs.state_dict(), model, f"start.scenario '{start.scenario}'")
    if scenario.start is not None:
        check_start(scenario.start, first_model(run_plan, theirs), prepare)


def first_model(run_plan: RunPlan, model: FlatModel) -> FlatModel:
    """The initial model of a plan's first phase, to which [start] applies; `model` is that of the last phase."""
    first = run_plan.workloads[0]
    return model if first is run_plan.result else flat_model(run_plan.scenario, first)


def start_from(run_plan: RunPlan, model: FlatModel, source: Source) -> tuple[RunPlan, Transfer]:
    """The same plan with other initial weights for its first phase; also loads them into `model`, that phase's model.

    Raises:
        DataError: Tensors that no rule covers exist on one side only, or differ in shape.
        ScenarioError: A rule matches nothing, no tensor is left to transfer, or training changes an integer or a flag
            under differential privacy.
    """
    start = run_plan.scenario.start
    assert start is not None
    taken = _transfer(start, source.state, model, source.where)
    first = run_plan.workloads[0]
    discrete = {name: values.numpy() for name, values in taken.discrete.items()}
    initial = replace(first.initial, vector=taken.vector.numpy(), constants=taken.constants.numpy(), discrete=discrete)
    load_initial(model, initial)
    started = replace(first, initial=initial)
    workloads = constants_handed_over(
        run_plan.scenario, [started if workload is first else workload for workload in run_plan.workloads]
    )
    origin = {
        **source.origin,
        "taken": list(taken.taken),
        "fresh": list(taken.fresh),
        "not_used": list(taken.unmatched),
    }
    check_discrete_buffers(run_plan.scenario, run_plan.phases, workloads)
    return replace(run_plan, workloads=workloads, origin=origin), taken


def _transfer(start: Start, state: Mapping[str, Any], model: FlatModel, where: str) -> Transfer:
    """Transfers by the rules of a start."""
    return transfer(renamed(state, start.rename, where), model, start.head, start.ignore, where)


def given(start: Start) -> Source:
    """Reads the weights of a start that names no scenario.

    Raises:
        ScenarioError: The library does not have weights of this name.
        DataError: The weights are missing, or the file holds something else.
    """
    if start.file is not None:
        return from_file(Path(start.file))
    if start.run is not None:
        return from_named_run(start.run)
    assert start.weights is not None
    return from_library(start.weights)


def _digest(scenario: Scenario, prepared: Prepared) -> str:
    """A digest of everything that a scenario's result depends on, including its own start."""
    scenario = resolve(scenario)
    return fingerprint(scenario, *prepared.identity(scenario), _digest_of_start(scenario.start, prepared))


def _digest_of_start(start: Start | None, prepared: Prepared) -> str | None:
    if start is None:
        return None
    before = scenario_to_start_from(start)
    if before is not None:
        return _digest(before, prepared)
    if start.file is not None:
        return origin_digest(from_file(Path(start.file)).origin)
    if start.run is not None:
        return origin_digest(from_named_run(start.run).origin)
    return origin_digest({"name": start.weights or ""})
