"""What the client updates of one call on a host gave and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rayfl.local.spending import Spending, SpendingByClient
from rayfl.planning.totals import Traffic

if TYPE_CHECKING:
    from rayfl.local.context import ClientContext


@dataclass(frozen=True)
class UpdateReport:
    """What the client updates of one call on a host gave and cost.

    Attributes:
        losses: The sum of each client's step losses, and their number.
        traffic: What the protocol would move.
        scalars: Reported scalars by client and name.
        spent: What of clients' privacy, by client; empty without `local.dp`.
    """

    losses: Mapping[int, tuple[float, int]]
    traffic: Traffic
    scalars: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    spent: SpendingByClient = field(default_factory=dict)


class ReportBuilder:
    """Adds up what a host's client updates report."""

    def __init__(self) -> None:
        self._losses: dict[int, tuple[float, int]] = {}
        self._traffic = Traffic()
        self._scalars: dict[int, dict[str, float]] = {}
        self._spent: dict[int, Spending] = {}

    def add(self, client: ClientContext, traffic: Traffic) -> None:
        """Takes in one client update, and what the protocol would move for it."""
        self._traffic += traffic
        self._losses[client.id] = client._losses_for_reports()
        if client.scalars:
            self._scalars[client.id] = client.scalars
        self.charge(client)

    def charge(self, client: ClientContext) -> None:
        """Takes in what a client update spent of its client's privacy."""
        if client.spent:
            self._spent[client.id] = client.spent

    def result(self) -> UpdateReport:
        """Returns the report of all of them."""
        return UpdateReport(self._losses, self._traffic, self._scalars, self._spent)
