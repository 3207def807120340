"""Actor constructors that store their failure, so that rayfl reports it instead of Ray."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Generic, TypeVar

import ray
from ray.exceptions import RayError

from rayfl.cluster.failures import as_rayfl_error
from rayfl.errors import RayflError, ResourceError
from rayfl.user_code import their_traceback

T = TypeVar("T")


class Started(Generic[T]):
    """The object that an actor's constructor made, or the error with which it failed.

    An exception in an actor's constructor reaches the driver as text inside Ray's own message. So constructors do not
    raise: they store the error, and the first method that needs the object raises it.
    """

    def __init__(self, what: str, make: Callable[[], T]) -> None:
        """Calls `make`.

        Args:
            what: The actor's name for the error message.
            make: Creates the object behind the actor.
        """
        self._error: RayflError | None = None
        where = f"{what} could not start on node {ray.util.get_node_ip_address()}"
        try:
            self._made = make()
        except RayflError as error:
            self._error = type(error)(f"{where}: {error}")
        except RayError as error:  # another actor that it called died
            told = as_rayfl_error(error, {})
            self._error = type(told)(f"{where}: {told}")
        except BaseException as error:  # a user's code may raise anything
            said = "".join(traceback.format_exception_only(error)).strip()
            self._error = ResourceError(f"{where}: {said}\n{their_traceback(error)}")

    def get(self) -> T:
        """Returns the object, or raises the stored error."""
        if self._error is not None:
            raise self._error
        return self._made
