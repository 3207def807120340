"""Prints data, model, phases and workers before a run begins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Console

from rayfl.config.scenario import Scenario
from rayfl.config.user_modules import edited
from rayfl.console import LABEL, print_wrapped
from rayfl.data.split_facts import empty_classes
from rayfl.engine.backend import BackendSession
from rayfl.engine.device import differing_hosts
from rayfl.engine.plan.client_statement import planned_cost
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.models.flat import FlatModel
from rayfl.privacy.samples.statement import NOT_COVERED, STARTED, randomness


def say(console: Console, line: str, style: str = "") -> None:
    """Prints a line that begins with a label; on a narrow terminal, its text is continued below its text."""
    print_wrapped(console, line, style, indent=LABEL)


def announce(console: Console, run_plan: RunPlan, model: FlatModel) -> None:
    """Prints the scenario and its data before the run starts; generated data stands out.

    The records have the rest: a description of the data, and the files and traces with their digests.
    """
    store, scenario = run_plan.result.store, run_plan.scenario
    data_seed = "" if scenario.data.seed is None else f", data seed {scenario.data.seed}"
    say(console, f"{title_of(scenario)} (scenario {scenario.name}, seed {scenario.seed}{data_seed})", "bold")
    source = SOURCES[store.provenance.source]
    stands_out = "yellow" if store.provenance.source == "generated" else ""
    say(console, f"data     {store.name}, {source}: {store.summary()}", stands_out)
    if store.provenance.notice:
        say(console, f"note     {store.provenance.notice}", stands_out)
    lines = [
        f"model    {run_plan.result.network.name}, {model.num_params:,} parameters",
        *_phase_lines(run_plan),
    ]
    if run_plan.devices is not None:
        summary = run_plan.devices.summary() or "always available, and nothing takes time"
        lines.append(f"devices  simulated: {summary}")
    if run_plan.accounting:
        lines += [f"privacy  {line}" for line in planned_cost(run_plan)]
    if changed := edited(run_plan.code):
        remedy = "restart the program, or importlib.reload it, to use the file as it is now"
        lines.append(f"note     {', '.join(changed)} was edited after this program had imported it; {remedy}")
    if note := empty_classes(store):
        lines.append(f"note     {note}")
    if store.server is not None and not any(_reads_server(plan) for plan in run_plan.phases):
        lines.append(f"note     no phase uses the server's {len(store.server):,} samples")
    for line in [*lines, *privacy_lines(run_plan)]:
        say(console, line)


SOURCES = {"files": "from files", "generated": "generated", "arrays": "from arrays in memory"}


def _phase_lines(run_plan: RunPlan) -> Iterator[str]:
    """One line per phase, and one on the tensors that it takes over if those are not all of them."""
    alone = all(workload is run_plan.result for workload in run_plan.workloads)
    for phase, workload in zip(run_plan.scenario.phases, run_plan.workloads, strict=True):
        learned = "" if alone else f", task {workload.task.name}, model {workload.network.name}"
        rounds = f"{phase.rounds} round{'s' * (phase.rounds != 1)}"
        yield f"phase    {phase.name}: {rounds}, {phase.schedule}, {phase.algorithm.name}{learned}"
        part = run_plan.trained[phase.name]
        if part.num_trained < part.num_params:
            travels = "" if phase.pool else f", and {part.num_sent:,} values travel"
            yield f"         trains {part.num_trained:,} of {part.num_params:,} parameters{travels}"
        if not (workload.initial.channels_last or run_plan.scenario.resources.uses_cuda):
            yield f"note     {workload.network.name} or its task fails on channels-last weights, so they are contiguous"
        if phase.name in run_plan.handovers:
            yield f"         from the previous phase: {run_plan.handovers[phase.name].summary()}"


def privacy_lines(run_plan: RunPlan) -> list[str]:
    """The privacy that a run with `local.dp` plans: noise, the largest epsilon, and notes.

    For a run with `phases.N.dp`, only a note that the guarantee does not cover the starting model.
    """
    lines, phases = [], []
    for plan in run_plan.phases:
        dp, name = plan.phase.local.dp, plan.phase.name
        if dp is None or name not in run_plan.spending.epsilons:
            continue
        planned = run_plan.spending.epsilons[name]
        phases.append(dp)
        noise = f"{plan.noise:.4g}" if isinstance(plan.noise, float | int) else ""
        if isinstance(plan.noise, np.ndarray):
            noise = f"{plan.noise.min():.4g} to {plan.noise.max():.4g} by client"
        why = "" if dp.target_epsilon is None else f" for target_epsilon {dp.target_epsilon:g}"
        epsilon = NOT_COVERED if planned is None else f"epsilon at most {planned:.4g} after it"
        lines.append(f"privacy  {name}: noise multiplier {noise}{why}; {epsilon}, delta {dp.delta:g}")
    if phases:
        lines.append(f"         {randomness(phases)}")
    if run_plan.scenario.start and (phases or run_plan.accounting):
        lines.append(f"note     {NOT_COVERED}: {STARTED}")
    return lines + [f"note     {note}" for note in run_plan.spending.notes]


def announce_hosts(console: Console, run_plan: RunPlan, session: BackendSession, backend: str, where: str) -> None:
    """Prints the worker processes, and where the records go; warns where they differ, or lack GPU memory."""
    lines = [f"worker {host['host']} {host['device']} on {host['node']} (backend {backend})" for host in session.hosts]
    if session.dashboard:
        lines.append(f"ray      dashboard at {session.dashboard}")
    for line in [*lines, f"records  {where}"]:
        say(console, line)
    warnings = [differing_hosts(session.hosts)]
    if 0 < run_plan.scenario.resources.gpus_per_host < 1:
        from rayfl.engine.memory_plan import memory_note  # fake tensors take half a second to load

        warnings.append(memory_note(run_plan, session.hosts))
    for warning in filter(None, warnings):
        say(console, warning, "bold red")


def _reads_server(plan: PhasePlan) -> bool:
    return "server" in plan.asked or plan.phase.pool == "server"


def title_of(scenario: Scenario) -> str:
    """The title, or the name if there is none."""
    return scenario.title or scenario.name
