"""A client's privacy spending: how often each mechanism touched its samples. Needs no PyTorch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Mechanism:
    """A Gaussian mechanism on Poisson-sampled data of a client.

    Attributes:
        noise_multiplier: Standard deviation of the noise as a multiple of the sensitivity.
        rate: The probability with which each sample takes part, in (0, 1].
        part: Which of the client's samples it touches: "" for all of them, or the name of a part that is drawn once for
            the whole run (`support`, `query`). Parts do not overlap, so they compose in parallel.
    """

    noise_multiplier: float
    rate: float
    part: str = ""


Spending = Mapping[Mechanism, int]
"""How often each mechanism was used."""

SpendingByClient = Mapping[int, Spending]
"""Privacy spent by each client in a round or in the run so far; a pool of samples also has a number (see
`rayfl.data.held_out`)."""


class PrivacyAccounts:
    """One account per client over a whole run.

    Only committed rounds are booked; a client update that is repeated because its worker died is booked once.
    """

    def __init__(self) -> None:
        self._spent: dict[int, Counter[Mechanism]] = {}

    def book(self, spent: Iterable[SpendingByClient]) -> None:
        """Adds the spending of the client updates of a committed round."""
        for by_client in spent:
            for client, spending in by_client.items():
                self._spent.setdefault(client, Counter()).update(spending)

    def of(self, client: int) -> Spending:
        """The spending of a client or pool so far."""
        return self._spent.get(client, {})

    def spent(self) -> dict[int, dict[Mechanism, int]]:
        """Returns the spending of every client so far, as plain data ordered by client."""
        return {client: dict(sorted(self._spent[client].items())) for client in sorted(self._spent)}

    def restore(self, spent: SpendingByClient) -> None:
        """Continues from these accounts."""
        self._spent = {client: Counter(spending) for client, spending in spent.items()}


def by_client_in_total(spent: Iterable[SpendingByClient]) -> SpendingByClient:
    """Sums the spending of several client updates by client."""
    accounts = PrivacyAccounts()
    accounts.book(spent)
    return accounts.spent()
