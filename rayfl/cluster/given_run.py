"""The run that actors serve, as they receive it. Does not import PyTorch, which the scheduler does without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ray

from rayfl.cluster.main_objects import install_main_objects, pack_main_objects
from rayfl.config.scenario import Scenario
from rayfl.config.user_modules import make_importable

if TYPE_CHECKING:
    from rayfl.engine.job import Job
    from rayfl.planning.phase_plan import Protection
    from rayfl.planning.workload import InitialModel, Workload


@dataclass(frozen=True)
class GivenRun:
    """A run, as every actor receives it.

    Attributes:
        scenario: The scenario to run.
        main_objects: See `pack_main_objects`.
    """

    scenario: Scenario
    main_objects: bytes

    @staticmethod
    def of(job: Job) -> GivenRun:
        """The run of a job."""
        return GivenRun(job.scenario, pack_main_objects(job.scenario))

    def make_importable(self) -> None:
        """Makes the user's code importable in this process."""
        make_importable(self.scenario.module_folders)
        install_main_objects(self.main_objects)


@dataclass(frozen=True)
class Models:
    """Additional data for the server and for the hosts, which fetch it from the server.

    Attributes:
        initial: The initial model of each phase.
        num_clients: The number of clients of each phase.
        protection: The run's differential privacy.
        workloads: The hosts' data and networks, as a reference in a list: Ray would replace a bare reference among a
            call's arguments by its value.
    """

    initial: Sequence[InitialModel]
    num_clients: Sequence[int]
    protection: Protection
    workloads: list[ray.ObjectRef[tuple[Sequence[Workload], Protection]]]

    @staticmethod
    def of(job: Job) -> Models:
        """The models of a job; puts its data into the object store, one copy per node, which hosts map read-only."""
        workloads = ray.put((job.workloads, job.protection))
        return Models(job.initial_models, job.num_clients, job.protection, [workloads])
