"""Reports of the client updates of one call on a host."""

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
    """Losses, scalars and costs of the client updates of one call on a host.

    Attributes:
        losses: The sum and the number of step losses, by client.
        traffic: The protocol's traffic.
        scalars: Reported scalars by client and name.
        spent: Privacy spent, by client; empty without `local.dp`.
    """

    losses: Mapping[int, tuple[float, int]]
    traffic: Traffic
    scalars: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    spent: SpendingByClient = field(default_factory=dict)


class ReportBuilder:
    """Collects the reports of a host's client updates."""

    def __init__(self) -> None:
        self._losses: dict[int, tuple[float, int]] = {}
        self._traffic = Traffic()
        self._scalars: dict[int, dict[str, float]] = {}
        self._spent: dict[int, Spending] = {}

    def add(self, client: ClientContext, traffic: Traffic) -> None:
        """Adds one client update and its protocol traffic."""
        self._traffic += traffic
        self._losses[client.id] = client._losses_for_reports()
        if client.scalars:
            self._scalars[client.id] = client.scalars
        self.charge(client)

    def charge(self, client: ClientContext) -> None:
        """Adds the privacy that a client update spent."""
        if client.spent:
            self._spent[client.id] = client.spent

    def result(self) -> UpdateReport:
        """The report of all updates."""
        return UpdateReport(self._losses, self._traffic, self._scalars, self._spent)
