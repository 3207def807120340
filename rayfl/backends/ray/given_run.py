"""The run that actors serve, as they receive it. Does not import PyTorch, which the scheduler does without.

Objects that a scenario names as `__main__:object` are sent along, since the actors' `__main__` is Ray's program.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray import cloudpickle

from rayfl.config.scenario import Scenario
from rayfl.config.user_modules import make_importable
from rayfl.errors import ScenarioError

if TYPE_CHECKING:
    from rayfl.engine.job import Job
    from rayfl.engine.plan.phase_plan import Protection
    from rayfl.engine.plan.workload import InitialModel, Workload


MAIN = "__main__:"


def pack_main_objects(scenario: Scenario) -> bytes:
    """Pickles the objects of the user's script that a scenario names, by value.

    Ray's cloudpickle stores classes and functions of `__main__` with their code and the globals they use.

    Args:
        scenario: The scenario; every string `__main__:object` in it counts.

    Returns:
        The pickled objects, for `install_main_objects`.

    Raises:
        ScenarioError: An object, or a global that it uses, cannot be pickled.
    """
    objects = {}
    for name in sorted(set(_named_in(scenario.model_dump(mode="json")))):
        objects[name] = getattr(sys.modules["__main__"], name)
        try:
            cloudpickle.dumps(objects[name])
        except Exception as error:  # pickling calls the user's code
            raise ScenarioError(
                f"'{MAIN}{name}' cannot be sent to Ray's workers ({type(error).__name__}: {error}): move it to a "
                f"separate module and name it 'module:{name}', or run with backend='inline'"
            ) from None
    packed: bytes = cloudpickle.dumps(objects)
    return packed


def install_main_objects(packed: bytes) -> None:
    """Makes packed objects importable as `__main__:object` in this process."""
    objects: Mapping[str, Any] = cloudpickle.loads(packed)
    vars(sys.modules["__main__"]).update(objects)


def _named_in(value: Any) -> Iterator[str]:
    match value:
        case str() if value.startswith(MAIN):
            yield value.removeprefix(MAIN)
        case dict():
            for inner in value.values():
                yield from _named_in(inner)
        case list():
            for inner in value:
                yield from _named_in(inner)


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
