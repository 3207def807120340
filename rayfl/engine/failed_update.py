"""Converts exceptions of client updates into errors that say where they occurred."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rayfl.engine.calls import client_names
from rayfl.engine.device import device_limits_explained
from rayfl.errors import ClientError, DivergenceError, RayflError, ResourceError
from rayfl.interruption import is_of_user_code
from rayfl.user_code import their_traceback


@dataclass(frozen=True)
class UpdateErrors:
    """Adds worker, phase and round to the errors of client updates.

    Attributes:
        host: Number of the host that they run on.
        phase: The phase's name, or another purpose of training, such as "personalisation".
        round: The round within the scenario.
        who: Name in errors of a pool of samples that trains in place of a client.
    """

    host: int
    phase: str
    round: int
    who: str = ""

    @contextmanager
    def of_client(self, client: int) -> Iterator[None]:
        """Converts exceptions raised within into a ClientError.

        Args:
            client: The client whose update runs.

        Raises:
            ClientError: In place of the original exception.
            ResourceError: The device ran out of memory, which is not the client's fault.
        """
        try:
            with device_limits_explained():
                yield
        except (ResourceError, ClientError):
            raise
        except BaseException as error:  # user code may raise anything
            if not is_of_user_code(error):
                raise
            if isinstance(error, RayflError):
                detail, diverged = str(error), isinstance(error, DivergenceError)
            else:
                detail, diverged = "its code raised\n" + their_traceback(error), False
            raise ClientError(client, self.host, self.phase, self.round, detail, diverged, self.who) from None

    @contextmanager
    def of_group(self, clients: Sequence[int]) -> Iterator[None]:
        """Converts exceptions raised within into an error about clients that train at once.

        Args:
            clients: Their numbers, two or more.

        Raises:
            ClientError: In place of the original exception; names the clients and the key.
            ResourceError: The device ran out of memory.
        """
        try:
            with device_limits_explained():
                yield
        except ResourceError as error:
            raise ResourceError(
                f"{client_names(clients)} trained at once on worker {self.host}: {error}; or lower "
                "numerics.clients_at_once"
            ) from None
        except BaseException as error:
            if not is_of_user_code(error):
                raise
            why = str(error) if isinstance(error, RayflError) else "training raised\n" + their_traceback(error)
            detail = f"they cannot train at once; set numerics.clients_at_once=1 to train one by one: {why}"
            where = self.host, self.phase, self.round
            raise ClientError(clients[0], *where, detail, who=client_names(clients)) from None
