"""Checks whether a run may continue with a changed scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rayfl.callbacks.callback import Given
from rayfl.config.scenario import CHANGES_NO_RESULT, Scenario
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.errors import CheckpointError, ResourceError, ScenarioError
from rayfl.files import reading
from rayfl.runs.archive import RunArchive
from rayfl.runs.checkpoints import Checkpoints, StoredCheckpoint
from rayfl.runs.environment import changed_code
from rayfl.runs.folder import CHECKPOINTS, SCENARIO_FILE
from rayfl.runs.resolution import resolve
from rayfl.runs.status import readable_status

MAY_CHANGE = CHANGES_NO_RESULT | {"callbacks"}
"""Keys that may change when a run resumes."""

SHOWN = 8
"""The most differences that a message lists."""


def check_something_left(folder: Path, scenario: Scenario, callbacks: Given, where: str) -> None:
    """Checks that a run that is to be resumed has not already ended as the given scenario would.

    Args:
        folder: The run's folder.
        scenario: The scenario to continue with, as loaded.
        callbacks: The callbacks that the program passes in.
        where: The run's location, for messages.

    Raises:
        ResourceError: It finished, and neither more rounds nor other callbacks would let it continue.
        ScenarioError: It finished with more rounds, which would be lost if it had no checkpoint.
    """
    status = readable_status(folder)
    if status is None or status["status"] != "finished":
        return
    before, now = _ended_as(folder, status.get("rounds")), resolve(scenario)
    fewer = [
        f"rounds: {old}, now {new}" for old, new in zip(_lengths(before), _lengths(now), strict=False) if new < old
    ]
    if (done := status.get("rounds") or 0) > sum(_lengths(now)):
        fewer.append(f"rounds in all: {done}, now {sum(_lengths(now))}")
    if fewer and not status.get("stopped"):
        raise ScenarioError(f"'{where}' has finished with more rounds ({fewer[0]}); run fewer in another folder")
    if any(_differences(before, now)) or _lengths(before) != _lengths(now):
        return
    if status.get("rounds") not in (None, sum(_lengths(now))):
        return
    stopped = status.get("stopped")
    if not stopped:
        state = "has finished"
    elif callbacks or before.callbacks != now.callbacks or not _decided_by(before, stopped["callback"]):
        return
    else:
        remedy = "change it, or leave it out (callbacks=[])" if before.callbacks else "a budget may not change"
        raise ResourceError(
            f"nothing to resume: the run in '{where}' has finished: it was stopped after round {stopped['round']} by "
            f"{stopped['callback']}, which would stop it again; {remedy}"
        )
    raise ResourceError(f"nothing to resume: the run in '{where}' {state}; add rounds with --more ROUNDS")


def goes_beyond(tables: Mapping[str, Any], now: Scenario, where: str) -> bool:
    """Whether a scenario has more rounds than that of a finished run.

    Args:
        tables: The run's scenario.toml.
        now: The scenario, as loaded.
        where: The run's location, for messages.

    Raises:
        ScenarioError: They differ in something else that may not change.
    """
    before, now = resolve(Scenario.from_tables(dict(tables))), resolve(now)
    lengths = list(zip(_lengths(before), _lengths(now), strict=False))
    shorter = [f"rounds: {old}, now {new}" for old, new in lengths if new < old]
    if differences := [*_differences(before, now), *shorter]:
        raise ScenarioError(
            f"'{where}' has a finished run of another scenario: {'; '.join(differences[:SHOWN])}; change them back, or "
            "name another folder"
        )
    return any(new > old for old, new in lengths)


def plain_scenario(scenario: Scenario) -> dict[str, Any]:
    """What a checkpoint records of a resolved scenario: the keys that decide the result, and the callbacks."""
    return scenario.model_dump(mode="json", exclude=set(CHANGES_NO_RESULT), exclude_none=True)


def check_same_run(folder: Path, run_plan: RunPlan, records: Mapping[str, Any] | None, where: str) -> list[str]:
    """Checks that a run may continue with a given plan.

    Args:
        folder: The run's folder.
        run_plan: The plan of the resolved scenario to continue.
        records: The run's state in its latest checkpoint (`Run.state`); None if there is none.
        where: The run's location, for messages.

    Returns:
        Warnings about changes that may still alter results.

    Raises:
        ScenarioError: The scenario or its data differs.
        CheckpointError: The checkpoint's state is damaged.
    """
    done, before, constants, warnings = 0, None, [], []
    if records is not None:
        with reading(folder / CHECKPOINTS, "as the state of a run", CheckpointError):
            done, constants = int(records["seen"]["done"]), list(records["constants"])
        before = _scenario_in(folder, records)
        if changed := list(_changed(_callbacks(before), _callbacks(run_plan.scenario))):
            warnings.append(f"callbacks differ from those of the checkpoint: {'; '.join(changed[:SHOWN])}")
    archive = RunArchive(folder)
    before = before or resolve(archive.scenario)
    differences = [*_differences(before, run_plan.scenario), *_rounds(before, run_plan.scenario, done)]
    if differences:
        more = f"; and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        raise ScenarioError(
            f"'{where}' cannot continue with a different scenario; only resources, checkpoint, callbacks and the "
            f"number of remaining rounds may change: {'; '.join(differences[:SHOWN])}{more}; change them back "
            f"({SCENARIO_FILE} may have been edited), or run the new scenario in another folder"
        )
    try:
        data, traces = archive.data_digests, archive.trace_digests
        weights, code = archive.weights, archive.code
    except ResourceError as error:
        return [*warnings, f"{error}; so whether your data and code have changed since then cannot be checked"]
    if data[0] != run_plan.result.store.provenance.digest:
        raise ScenarioError(f"data: '{where}' began with other data: the digest of its files has changed since")
    if traces != (run_plan.devices.digests if run_plan.devices else []):
        raise ScenarioError(f"participation: '{where}' began with other traces: their files have changed since")
    for phase, digest, needed in zip(run_plan.scenario.phases, constants, run_plan.constants, strict=False):
        if digest != needed:
            raise ScenarioError(
                f"phases.{phase.name}.model: '{where}' began with other frozen parameters than your code now gives; "
                "resume with the code and the files that the run began with"
            )
    now = [model.memory_format for model in run_plan.initial_models]
    for phase, began, needed in zip(run_plan.scenario.phases, weights, now, strict=False):
        if began != needed:
            raise ScenarioError(
                f"phases.{phase.name}.model: '{where}' began with {began} weights, but it now needs {needed} ones: "
                "resume with the code and the kind of device (resources.device) that the run began with"
            )
    if changed := changed_code(code, run_plan.code):
        warnings.append(f"your code has changed since the run began: {', '.join(changed)}")
    return warnings


def _ended_as(folder: Path, rounds: object) -> Scenario:
    """The scenario with which a finished run ended, as far as its records tell: `scenario.toml` may have been edited.

    Args:
        folder: The run's folder.
        rounds: Its rounds in status.json; a checkpoint of fewer is from before the run was extended.
    """
    for checkpoint in Checkpoints(folder, 1).newest_first():
        if isinstance(checkpoint, StoredCheckpoint):
            scenario = _scenario_in(folder, checkpoint.records)
            if rounds in (None, sum(_lengths(scenario))):
                return scenario
            break
    return resolve(RunArchive(folder).scenario)


def _scenario_in(folder: Path, records: Mapping[str, Any]) -> Scenario:
    with reading(folder / CHECKPOINTS, "as the state of a run", CheckpointError):
        return resolve(Scenario.from_tables(dict(records["scenario"])))


def _lengths(scenario: Scenario) -> list[int]:
    return [phase.rounds for phase in scenario.phases]


def _decided_by(scenario: Scenario, who: str) -> bool:
    """Whether a callback or budget of the scenario stopped a run, which would stop it again, rather than a program."""
    return who.startswith(("local.", "dp.")) or any(chosen.name == who for chosen in scenario.callbacks)


def _differences(before: Scenario, now: Scenario) -> Iterator[str]:
    return _changed(_comparable(before), _comparable(now))


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    one, other = dict(_flat(before)), dict(_flat(now))
    for key in dict.fromkeys((*one, *other)):
        if one.get(key) != other.get(key):
            yield f"{key}: {_shown(one, key)}, now {_shown(other, key)}"


def _comparable(scenario: Scenario) -> dict[str, Any]:
    tables = scenario.model_dump(mode="json", exclude=set(MAY_CHANGE), exclude_none=True)
    return tables | {
        "phases": {phase["name"]: {key: value for key, value in phase.items() if key != "rounds"} | {"position": number}
                   for number, phase in enumerate(tables["phases"])}
    }  # fmt: skip


def _callbacks(scenario: Scenario) -> dict[str, Any]:
    chosen = (callback.model_dump(mode="json", exclude_none=True) for callback in scenario.callbacks)
    return {"callbacks": {str(number): callback for number, callback in enumerate(chosen)}}


def _rounds(before: Scenario, now: Scenario, done: int) -> Iterator[str]:
    first = 0
    for old, new in zip(before.phases, now.phases, strict=False):
        own, first = done - first, first + old.rounds
        if old.rounds == new.rounds:
            continue
        change = f"phases.{new.name}.rounds: {old.rounds}, now {new.rounds}"
        targets = [dp for phase in now.phases for dp in (phase.local.dp, phase.settings.dp) if dp is not None]
        if own > old.rounds:
            yield f"{change}, but the phase is complete"
        elif new.rounds < own:
            yield f"{change}, but {own} of them are complete"
        elif own > 0 and old.local.round_schedule.depends_on_length:
            yield f"{change}, but the learning rate of its completed rounds (local.round_schedule) depends on them"
        elif any(dp.target_epsilon is not None for dp in targets):
            yield f"{change}, but the noise of a target_epsilon depends on them"


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else name)
    else:
        yield key, value


def _shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "not set"
