"""Sends objects that a scenario names as `__main__:object` to the actors, whose `__main__` is Ray's program."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ray import cloudpickle

from rayfl.config.scenario import Scenario
from rayfl.errors import ScenarioError

PREFIX = "__main__:"


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
                f"'{PREFIX}{name}' cannot be sent to Ray's workers ({type(error).__name__}: {error}): move it to a "
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
        case str() if value.startswith(PREFIX):
            yield value.removeprefix(PREFIX)
        case dict():
            for inner in value.values():
                yield from _named_in(inner)
        case list():
            for inner in value:
                yield from _named_in(inner)
