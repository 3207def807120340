"""Turns a scenario into the plan of a run: data, networks and checks, before anything starts."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from rayfl.config.local import Train
from rayfl.config.phase import Phase
from rayfl.config.scenario import Scenario
from rayfl.data.batch_trial import try_batches
from rayfl.data.files import cache_folder
from rayfl.data.scenario_data import data_digest, load
from rayfl.data.store import ShardStore, build_store
from rayfl.engine.client_statistics import check_client_statistics
from rayfl.engine.initial_model import constants_handed_over, load_initial
from rayfl.engine.plan.client_privacy import plan_client_privacy
from rayfl.engine.plan.cohort import check_cohort
from rayfl.engine.plan.devices import build_profiles
from rayfl.engine.plan.fixed_part import Trainings
from rayfl.engine.plan.headline import metrics_key
from rayfl.engine.plan.message_sizes import MessageSizes, planned_messages
from rayfl.engine.plan.metric_checks import check_bank_is_read, check_metrics
from rayfl.engine.plan.network_outputs import num_outputs_of
from rayfl.engine.plan.network_trial import build_checked
from rayfl.engine.plan.phase_plan import PhasePlan
from rayfl.engine.plan.private_network_checks import Checked, check_discrete_buffers, check_network
from rayfl.engine.plan.requirements import check_requirements
from rayfl.engine.plan.run_plan import RunPlan
from rayfl.engine.plan.sample_privacy import plan_sample_privacy
from rayfl.engine.plan.sampling import population_of
from rayfl.engine.plan.scenario_checks import check_rounds, check_scenario
from rayfl.engine.plan.slices import cut, draw_bank, draw_test_samples
from rayfl.engine.plan.symbolic_rounds import with_traces
from rayfl.engine.plan.workload import InitialModel, Workload
from rayfl.errors import DataError
from rayfl.models.feature_layer import head_of
from rayfl.models.flat import FlatModel
from rayfl.models.network import Network
from rayfl.runs.environment import code_digests
from rayfl.runs.resolution import resolve
from rayfl.runs.start_chain import with_starts
from rayfl.tasks.construction import build_task, task_key

T = TypeVar("T")

Step = Callable[[str, str], AbstractContextManager[None]]

KEPT = 4
"""Number of data sets, and of plans with their networks, in memory at once."""


def _unseen(doing: str, what: str) -> AbstractContextManager[None]:
    return nullcontext()


class DataIdentity(NamedTuple):
    """What identifies the data of a run without holding it.

    Attributes:
        digest: A digest of the data and of its partition among the clients.
        clients: Number of clients.
    """

    digest: str
    clients: int


class Prepared:
    """The latest data and plans, for scenarios that belong together: starts, centralised counterparts, cells of a grid.

    Equal data is loaded once, and equal scenarios are prepared once.

    Args:
        data_dir: The folder with real data.
        whole: Whether vectors hold constants too (those in float32), for analyses of whole models.
    """

    def __init__(self, data_dir: Path, whole: bool = False) -> None:
        self._data_dir, self._whole = data_dir, whole
        self._stores: OrderedDict[str, ShardStore] = OrderedDict()
        self._plans: OrderedDict[str, tuple[RunPlan, FlatModel]] = OrderedDict()
        self._identities: dict[str, DataIdentity] = {}

    def store(self, scenario: Scenario) -> ShardStore:
        """Returns the data of a resolved scenario; see `build_store`."""
        data, seed, folder = scenario.data, scenario.data_seed, self._data_dir
        return _latest(self._stores, _data_key(scenario), lambda: build_store(data, seed, folder, cache_folder()))

    def identity(self, scenario: Scenario) -> DataIdentity:
        """Returns the identity of a resolved scenario's data, which is loaded only the first time."""
        key = _data_key(scenario)
        if key not in self._identities:
            store = self.store(scenario)
            digest = hashlib.sha256(store.provenance.digest.encode())
            for array in (store.train_shards.rows, store.train_shards.offsets):
                digest.update(array.tobytes())
            self._identities[key] = DataIdentity(digest.hexdigest(), store.num_clients)
        return self._identities[key]

    def digest_before_partition(self, scenario: Scenario) -> str:
        """Returns the digest of a resolved scenario's data; does not partition it for that."""
        if store := self._stores.get(_data_key(scenario)):
            return store.provenance.digest
        return data_digest(load(scenario.data, scenario.data_seed, self._data_dir, cache_folder()))

    def keep_data_of(self, scenario: Scenario) -> None:
        """Drops all plans, and all data but that of a resolved scenario."""
        self._plans.clear()
        for key in set(self._stores) - {_data_key(scenario)}:
            del self._stores[key]

    def plan(self, scenario: Scenario, step: Step = _unseen) -> tuple[RunPlan, FlatModel]:
        """Returns the plan of a scenario and the initial model of its last phase; see `prepare`.

        Args:
            scenario: The scenario as loaded from files and overrides.
            step: Shows a step while it is under way, from what is done and what it is done to.
        """
        scenario = resolve(scenario)
        key = json.dumps(scenario.model_dump(mode="json", exclude={"module_folders"}), sort_keys=True)
        run, model = _latest(self._plans, key, lambda: _prepared(scenario, self.store, self._whole, step))
        load_initial(model, run.result.initial)  # a run may have trained it
        if run.scenario is not scenario:
            phases = [plan.with_facts(scenario=scenario) for plan in run.phases]
            run = replace(run, scenario=scenario, phases=phases)
        return run, model


def _data_key(scenario: Scenario) -> str:
    return json.dumps([scenario.data.model_dump(mode="json"), scenario.data_seed], sort_keys=True)


def _latest(cache: OrderedDict[str, T], key: str, make: Callable[[], T]) -> T:
    """Returns what is kept under a key, or makes it; drops what has not been used for longest."""
    if key not in cache:
        cache[key] = make()
    cache.move_to_end(key)
    if len(cache) > KEPT:
        cache.popitem(last=False)
    return cache[key]


def prepare(scenario: Scenario, data_dir: Path, whole: bool = False) -> tuple[RunPlan, FlatModel]:
    """Loads the data, builds the networks, and makes every check that is possible before a host starts.

    Args:
        scenario: The scenario as loaded from files and overrides.
        data_dir: The folder with real data.
        whole: As for `Prepared`.

    Returns:
        The plan of the run, and the initial model of its last phase on the CPU.

    Raises:
        ScenarioError: The scenario is wrong.
        DataError: The data is missing or wrong.
    """
    return Prepared(data_dir, whole).plan(scenario)


def _prepared(
    scenario: Scenario, load: Callable[[Scenario], ShardStore], whole: bool, step: Step
) -> tuple[RunPlan, FlatModel]:
    plans = check_scenario(scenario)
    with step("loading", "data"):
        store = load(scenario)
    with step("building", "network"):
        return _planned(scenario, plans, store, whole)


def _planned(
    scenario: Scenario, plans: Sequence[PhasePlan], store: ShardStore, whole: bool
) -> tuple[RunPlan, FlatModel]:
    for phase in scenario.phases:
        check_cohort(phase, f"phases.{phase.name}", store.num_clients)
    store = draw_test_samples(scenario.evaluation, store, scenario.data_seed)
    store = draw_bank(scenario.evaluation, store, scenario.data_seed)
    cut(scenario.evaluation, store)
    workloads, models = _built(scenario, store, whole)
    plans = with_traces(plans, models, workloads)
    check_rounds(scenario, plans)
    check_requirements(scenario, plans, [model.module for model in models], workloads)
    if scenario.start is None:  # otherwise once its weights are known
        check_discrete_buffers(scenario, plans, workloads)
    checked: set[Checked] = set()
    parts = list(zip(plans, models, workloads, strict=True))
    for plan, model, workload in parts:
        check_network(plan, model, workload, checked)
    simulated = scenario.participation
    plans = [
        plan.with_facts(
            population=population_of(plan, workload),
            messages=planned_messages(plan, model, workload) if simulated else (),
            first_messages=planned_messages(plan, model, workload, first_round=True) if simulated else (),
        )
        for plan, model, workload in parts
    ]
    private, spending = plan_sample_privacy(scenario, plans)
    hidden, accounting = plan_client_privacy(scenario, private, models)
    worker_code = code_digests(with_starts(scenario.model_copy(update={"callbacks": ()})))
    worker_code.pop("__main__", None)
    run = RunPlan(
        scenario,
        hidden,
        workloads,
        spending=spending,
        accounting=accounting,
        devices=build_profiles(simulated, scenario.seed, store.num_clients) if simulated else None,
        code=code_digests(with_starts(scenario)),
        worker_code=worker_code,
        trained={
            plan.phase.name: MessageSizes.part_trained(plan, model, workload.initial.frozen)
            for plan, model, workload in parts
        },
    )
    for phase, workload, model in zip(scenario.phases, workloads, models, strict=True):
        check_client_statistics(workload, run.headlines[phase.name])
        check_metrics(workload, model.module, metrics_key(phase), scenario.data_seed)
    check_bank_is_read(workloads)
    return run, models[-1]


def _built(scenario: Scenario, store: ShardStore, whole: bool) -> tuple[list[Workload], list[FlatModel]]:
    """The workload and initial model of each phase, shared by phases with the same task, network and trained part."""
    shared: list[tuple[tuple[object, ...], Workload, FlatModel]] = []
    workloads, models = [], []
    for phase in scenario.phases:
        trainings = None if whole else _trainings(scenario, phase)
        what = scenario.task_of(phase), scenario.model_of(phase), scenario.evaluation_of(phase), trainings
        built = next(((workload, model) for key, workload, model in shared if key == what), None)
        if built is None:
            built = _workload(scenario, phase, store, trainings)
            shared.append((what, *built))
        workloads.append(built[0])
        models.append(built[1])
    return constants_handed_over(scenario, workloads), models


def _trainings(scenario: Scenario, phase: Phase) -> tuple[Train, ...]:
    """What the trainings on a phase's model are restricted to: its own, and that of clients in evaluations."""
    personalize = scenario.evaluation_of(phase).personalize
    trainings = (phase.train, *([personalize.train] if personalize else []))
    return ("all",) if "all" in trainings else trainings


def _workload(scenario: Scenario, phase: Phase, store: ShardStore, trainings: Trainings) -> tuple[Workload, FlatModel]:
    task, network = build_task(scenario, phase), scenario.model_of(phase)
    if store.views and task.views == 1:  # only tasks that compare views use them
        store = replace(store, views=())
        try_batches(store)
    try:
        num_outputs = num_outputs_of(task, store)
    except DataError as error:
        raise DataError(str(error) if phase.task is None else f"{task_key(phase)}: {error}") from None
    build = partial(build_task, scenario, phase)
    model, frozen = build_checked(scenario, phase, store, build, model_key(phase), trainings)
    copies = dict(model.module.copies) if isinstance(model.module, Network) else {}
    vector, head = model.vector.numpy().copy(), head_of(model.module) or ""
    discrete = {name: values.numpy() for name, values in model.discrete().items()}
    constants = model.constants.memory.numpy(), model.constants.slots
    initial = InitialModel(vector, model.layout, head, copies, frozen, model.channels_last, discrete, *constants)
    return Workload(network, initial, store, task, num_outputs, scenario.evaluation_of(phase)), model


def model_key(phase: Phase) -> str:
    """The key of the network of a phase."""
    return "model" if phase.model is None else f"phases.{phase.name}.model"
