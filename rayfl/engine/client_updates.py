"""Runs the updates of a group of clients, and passes the requests that they yield to executors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

from rayfl.engine.executors.executor import Executor, Requested, not_accepted, shared_out
from rayfl.engine.failed_update import UpdateErrors
from rayfl.engine.torch_generators import TorchGenerators
from rayfl.interruption import is_of_user_code
from rayfl.local.context import ClientContext
from rayfl.local.requests import ClientUpdate, LocalTraining

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
