"""What was spent of a client's privacy: how often which mechanism touched its samples. Needs no PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Mechanism:
    """A Gaussian mechanism on a sample of a client's data, drawn by Poisson sampling.

    Attributes:
        noise_multiplier: Standard deviation of its noise as a multiple of its sensitivity.
        rate: The probability with which each sample takes part, in (0, 1].
        part: Which of the client's samples it touches: "" for all of them, else the name of a part that is drawn once
            for the whole run (`support`, `query`). Parts do not overlap, so they compose in parallel.
    """

    noise_multiplier: float
    rate: float
    part: str = ""


Spending = Mapping[Mechanism, int]
"""How often each mechanism was used."""

SpendingByClient = Mapping[int, Spending]
"""What clients spent in a round, or in a run so far; a pool of samples has a number too (`rayfl.data.pools`)."""


class PrivacyAccounts:
    """One account per client over a whole run.

    Only committed rounds are booked; a client update that is repeated because its host died is booked once.
    """

    def __init__(self) -> None:
        self._spent: dict[int, Counter[Mechanism]] = {}

    def book(self, spent: Iterable[SpendingByClient]) -> None:
        """Adds what the client updates of a committed round spent."""
        for by_client in spent:
            for client, spending in by_client.items():
                self._spent.setdefault(client, Counter()).update(spending)

    def of(self, client: int) -> Spending:
        """What a client or pool has spent so far."""
        return self._spent.get(client, {})

    def spent(self) -> dict[int, dict[Mechanism, int]]:
        """What every client has spent so far, as plain data; in order, whatever order it was booked in."""
        return {client: dict(sorted(self._spent[client].items())) for client in sorted(self._spent)}

    def restore(self, spent: SpendingByClient) -> None:
        """Continues with these accounts."""
        self._spent = {client: Counter(spending) for client, spending in spent.items()}


def by_client_in_total(spent: Iterable[SpendingByClient]) -> SpendingByClient:
    """The sum of what several client updates spent, by client."""
    accounts = PrivacyAccounts()
    accounts.book(spent)
    return accounts.spent()
