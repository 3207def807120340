"""Runs the updates of a group of clients, and passes the requests that they yield to executors.

Their exceptions become errors that say where they occurred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rayfl.engine.backend import client_names
from rayfl.engine.device import TorchGenerators, device_limits_explained
from rayfl.engine.executors.executor import Executor, Requested, not_accepted, shared_out
from rayfl.errors import ClientError, DivergenceError, RayflError, ResourceError
from rayfl.interruption import is_of_user_code
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate, LocalTraining
from rayfl.wording import their_traceback


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


T = TypeVar("T")


class ClientUpdates:
    """Runs client updates, those of a group side by side.

    Args:
        chain: Executors, in the order in which they are tried.
        generators: PyTorch's generators by client; shared with the executors.
    """

    def __init__(self, chain: Sequence[Executor], generators: TorchGenerators) -> None:
        self._chain, self._generators = chain, generators

    def run(
        self,
        group: Sequence[ClientContext],
        update: Callable[[ClientContext], ClientUpdate[T]],
        errors: UpdateErrors,
    ) -> list[T]:
        """Runs the updates of a group of clients until all of them have ended.

        Args:
            group: The clients, in the order in which the scenario groups them.
            update: Begins a client's update.
            errors: Converts exceptions.

        Returns:
            The results of the updates, in the order of the group.

        Raises:
            ClientError: An update or one of its requests failed. If several fail at once, the error is about the first
                of them in the group.
        """
        begun = [_Open(client, update(client)) for client in group]
        waiting = begun
        try:
            while waiting:
                for one in waiting:
                    self._generators.enter(one.client)
                    one.advance()
                self._carry_out([one for one in waiting if one.requested], errors)
                for one in waiting:
                    if isinstance(one.result, BaseException):
                        with errors.of_client(one.client.id):
                            raise one.result
                waiting = [one for one in waiting if one.requested]
            return [one.answer for one in begun]
        finally:
            self._generators.forget()
            for client in group:
                client.close()

    def _carry_out(self, waiting: Sequence[_Open[T]], errors: UpdateErrors) -> None:
        requests = [one.requested for one in waiting if one.requested]
        for one in waiting:
            one.result = None
        results: dict[int, Any] = {}
        for executor, places in shared_out(self._chain, requests):
            clients = [requests[place].client.id for place in places]
            with errors.of_group(clients) if len(places) > 1 else nullcontext():
                done = executor.run([requests[place] for place in places])
            results.update(zip(places, done, strict=True))
        for place, one in enumerate(waiting):
            one.result = results[place] if place in results else not_accepted(requests[place])


class _Open(Generic[T]):
    """A client update under way.

    Attributes:
        client: The client.
        requested: The request that it waits for; None once it has ended.
        result: The request's result, or the exception raised by the request or the update.
        answer: The update's return value.
    """

    answer: T

    def __init__(self, client: ClientContext, update: ClientUpdate[T]) -> None:
        self.client, self._update = client, update
        self.requested: Requested | None = None
        self.result: Any = None
        self._numbers: Counter[str] = Counter()

    def advance(self) -> None:
        """Sends the result to the update, which runs to its next request or its end."""
        result, self.requested, self.result = self.result, None, None
        try:
            request = self._update.send(result)
        except StopIteration as end:
            self.answer = end.value
        except BaseException as error:  # a user's algorithm may raise anything
            if not is_of_user_code(error):
                raise
            self.result = error
        else:
            kind = "training" if isinstance(request, LocalTraining) else "query"
            self.requested = Requested(self.client.asked_for(request), request, self._numbers[kind])
            self._numbers[kind] += 1
