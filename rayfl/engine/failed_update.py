"""What goes wrong in clients' updates, and how it is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rayfl.engine.calls import client_names
from rayfl.engine.device import device_limits_explained
from rayfl.errors import ClientError, DivergenceError, RayflError, ResourceError
from rayfl.user_code import their_traceback


@dataclass(frozen=True)
class UpdateErrors:
    """Tells whatever client updates raise, with the place where they ran.

    Attributes:
        host: Where they run.
        phase: The phase's name, or what else the clients train for.
        round: The round within the scenario.
        who: Instead of a client's number, where it is that of a pool of samples.
    """

    host: int
    phase: str
    round: int
    who: str = ""

    @contextmanager
    def of_client(self, client: int) -> Iterator[None]:
        """Whatever is raised within becomes a ClientError, unless it is one.

        Args:
            client: Whose update it is.

        Raises:
            ClientError: Instead of what was raised.
            ResourceError: The device has too little memory, which is not the client's fault.
        """
        try:
            with device_limits_explained():
                yield
        except (ResourceError, ClientError):
            raise
        except (Exception, SystemExit) as error:  # a user's code may raise anything, and the run must say where
            if isinstance(error, RayflError):
                detail, diverged = str(error), isinstance(error, DivergenceError)
            else:
                detail, diverged = "its code raised\n" + their_traceback(error), False
            raise ClientError(client, self.host, self.phase, self.round, detail, diverged, self.who) from None

    @contextmanager
    def of_group(self, clients: Sequence[int]) -> Iterator[None]:
        """Whatever is raised within is told as the failure of clients that train at once.

        Args:
            clients: Their numbers, two or more.

        Raises:
            ClientError: Instead of what was raised; names all of them, and the key.
            ResourceError: The device has too little memory for them.
        """
        try:
            with device_limits_explained():
                yield
        except ResourceError as error:
            raise ResourceError(
                f"{client_names(clients)} trained at once on host {self.host}: {error}; or lower "
                "numerics.clients_at_once"
            ) from None
        except (Exception, SystemExit) as error:
            why = str(error) if isinstance(error, RayflError) else "it raised\n" + their_traceback(error)
            detail = f"they cannot train at once; set numerics.clients_at_once=1, which trains one by one: {why}"
            where = self.host, self.phase, self.round
            raise ClientError(clients[0], *where, detail, who=client_names(clients)) from None
