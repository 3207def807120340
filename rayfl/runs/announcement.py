"""Prints data, model, phases and workers before a run begins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Console

from rayfl.config.scenario import Scenario
from rayfl.data.split_facts import empty_classes
from rayfl.engine.backend import BackendSession
from rayfl.engine.device import differing_hosts
from rayfl.engine.plan.client_statement import planned_cost
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.models.flat import FlatModel
from rayfl.privacy.samples.statement import NOT_COVERED, STARTED, randomness


def announce(console: Console, run_plan: RunPlan, model: FlatModel) -> None:
    """Prints the scenario and its data before the run starts; generated data stands out."""
    store, scenario = run_plan.result.store, run_plan.scenario
    data_seed = "" if scenario.data.seed is None else f", data seed {scenario.data.seed}"
    lines = [
        f"{title_of(scenario)} (scenario {scenario.name}, seed {scenario.seed}{data_seed})",
        f"data     {store.provenance.source}: {store.provenance.description}",
        *(f"         {path}, sha256 {digest[:16]}…" for path, digest in store.provenance.files),
        f"         {store.summary()}",
        f"model    {run_plan.result.network.name}, {model.num_params:,} parameters",
        *_phase_lines(run_plan),
        *_device_lines(run_plan),
    ]
    if run_plan.accounting:
        lines += [f"privacy  {line}" for line in planned_cost(run_plan)]
    if note := empty_classes(store):
        lines.append(f"note     {note}")
    if store.server is not None and not any(_reads_server(plan) for plan in run_plan.phases):
        lines.append(f"note     no phase uses the server's {len(store.server):,} samples")
    lines += privacy_lines(run_plan)
    styles = {0: "bold", 1: "yellow" if store.provenance.source == "generated" else ""}
    for number, line in enumerate(lines):
        console.print(line, style=styles.get(number, ""), highlight=False, markup=False, soft_wrap=True)


def _phase_lines(run_plan: RunPlan) -> Iterator[str]:
    """One line per phase, and one on the tensors that it takes over if those are not all of them."""
    alone = all(workload is run_plan.result for workload in run_plan.workloads)
    for phase, workload in zip(run_plan.scenario.phases, run_plan.workloads, strict=True):
        learned = "" if alone else f", task {workload.task.name}, model {workload.network.name}"
        yield f"phase    {phase.name}: {phase.rounds} rounds, {phase.schedule}, {phase.algorithm.name}{learned}"
        part = run_plan.trained[phase.name]
        if part.num_trained < part.num_params:
            travels = "" if phase.pool else f", and {part.num_sent:,} values travel"
            yield f"         trains {part.num_trained:,} of {part.num_params:,} parameters{travels}"
        if not (workload.initial.channels_last or run_plan.scenario.resources.uses_cuda):
            yield f"note     {workload.network.name} or its task fails on channels-last weights, so they are contiguous"
        if phase.name in run_plan.handovers:
            yield f"         from the previous phase: {run_plan.handovers[phase.name].summary()}"


def _device_lines(run_plan: RunPlan) -> Iterator[str]:
    """The clients' simulated devices, and their traces."""
    if run_plan.devices is not None:
        yield f"devices  simulated: {run_plan.devices.summary() or 'always available, and nothing takes time'}"
        for path, digest in run_plan.devices.files:
            yield f"         {path}, sha256 {digest[:16]}…"


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
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    warnings = [differing_hosts(session.hosts)]
    if 0 < run_plan.scenario.resources.gpus_per_host < 1:
        from rayfl.engine.memory_plan import memory_note  # fake tensors take half a second to load

        warnings.append(memory_note(run_plan, session.hosts))
    for warning in filter(None, warnings):
        console.print(warning, style="bold red", highlight=False, markup=False, soft_wrap=True)


def _reads_server(plan: PhasePlan) -> bool:
    return "server" in plan.asked or plan.phase.pool == "server"


def title_of(scenario: Scenario) -> str:
    """The title, or the name if there is none."""
    return scenario.title or scenario.name
