"""From a scenario to a job: data, network and checks, before anything starts."""

from __future__ import annotations

from pathlib import Path

from rayfl.config.scenario import Scenario
from rayfl.data.folders import cache_folder
from rayfl.data.store import build_store
from rayfl.engine.client_statistics import check_client_statistics
from rayfl.engine.initial_model import build_checked
from rayfl.engine.job import Job
from rayfl.engine.phase_checks import check_scenario
from rayfl.engine.requirements import check_metrics, check_requirements
from rayfl.fingerprint.users_code import code_digests
from rayfl.models.flat import FlatModel
from rayfl.planning.cohort import check_cohort
from rayfl.planning.phase_plan import plan_phases
from rayfl.planning.slices import cut, draw_test_samples
from rayfl.planning.workload import InitialModel, Workload
from rayfl.privacy.clients.planning import plan_client_privacy
from rayfl.privacy.samples.network_checks import check_network
from rayfl.privacy.samples.planning import plan_sample_privacy
from rayfl.resolution import resolve
from rayfl.start.chain import with_starts
from rayfl.tasks.building import build_task


def prepare(scenario: Scenario, data_dir: Path) -> tuple[Job, FlatModel]:
    """Loads the data, builds the network, and checks everything that can be checked before a host starts.

    Args:
        scenario: The scenario as loaded from files and overrides.
        data_dir: Where the real data is.

    Returns:
        The job, and the initial model on the CPU.

    Raises:
        ScenarioError: The scenario is wrong.
        DataError: The data is missing or wrong.
    """
    scenario = resolve(scenario)
    check_scenario(scenario)
    store = build_store(scenario.data, scenario.data_seed, data_dir, cache_folder())
    for phase in scenario.phases:
        check_cohort(phase, f"phases.{phase.name}", store.num_clients)
    store = draw_test_samples(scenario.evaluation, store, scenario.data_seed)
    cut(scenario.evaluation, store)
    task = build_task(scenario)
    num_outputs = task.num_outputs(store.train.y, store.num_classes)
    model = build_checked(scenario, scenario.model, store, task, num_outputs)
    check_requirements(scenario, model.module, store)
    check_network(scenario, plan_phases(scenario), model, store)
    initial = InitialModel(model.vector.numpy().copy(), model.layout)
    workload = Workload(scenario.model, initial, store, task, num_outputs, scenario.evaluation)
    phases = len(scenario.phases)
    sample_plan = plan_sample_privacy(scenario, [workload.population] * phases)
    client_plan = plan_client_privacy(scenario, model, store.train_shards.sizes)
    job = Job(
        scenario,
        [workload] * phases,
        sample_plan=sample_plan,
        client_plan=client_plan,
        code=code_digests(with_starts(scenario)),
    )
    check_client_statistics(workload, job.headline)
    check_metrics(workload, model)
    return job, model
