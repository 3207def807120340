"""The user's code that actors need to serve a run. Does not import PyTorch, which the scheduler does without.

Objects that a scenario names as `__main__:object` are sent along, since the actors' `__main__` is Ray's program.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray import cloudpickle

from rayfl.config.scenario import Scenario
from rayfl.config.user_modules import edited, import_paths, make_importable
from rayfl.errors import ScenarioError

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
    named = {path for path in import_paths(scenario.model_dump(mode="json")) if path.startswith(MAIN)}
    for name in sorted(path.removeprefix(MAIN) for path in named):
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


@dataclass(frozen=True)
class UserCode:
    """The user's code that a scenario names, as every actor receives it before the run's plan.

    Attributes:
        module_folders: Folders of the user's modules.
        main_objects: See `pack_main_objects`.
        digests: Digests of the modules' files.
    """

    module_folders: tuple[str, ...]
    main_objects: bytes
    digests: Mapping[str, str]

    @staticmethod
    def of(scenario: Scenario, digests: Mapping[str, str]) -> UserCode:
        """The code that a scenario names."""
        return UserCode(scenario.module_folders, pack_main_objects(scenario), digests)

    def make_importable(self) -> None:
        """Makes the code importable in this process.

        Raises:
            ScenarioError: A module that this process would import is not the one that the program has imported.
        """
        make_importable(self.module_folders)
        if changed := edited({name: digest for name, digest in self.digests.items() if name not in sys.modules}):
            raise ScenarioError(
                f"{', '.join(changed)}: was edited after the program had imported it, or is another file on this node, "
                "so that this worker would run other code; put the file back as it was, or start the program anew"
            )
        install_main_objects(self.main_objects)
