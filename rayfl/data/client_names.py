"""Names of natural clients, such as sites or writers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ClientNames:
    """Names of all clients in two arrays that the processes of a node share, rather than one object per name.

    Attributes:
        text: [m] uint8, all names in UTF-8, concatenated.
        ends: [clients] int64, where each name ends.
    """

    text: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, client: int) -> str:
        """The name of one client.

        Raises:
            IndexError: There is no such client.
        """
        start = self.ends[client - 1] if client else 0
        return self.text[start : self.ends[client]].tobytes().decode()

    @staticmethod
    def of(names: Sequence[str]) -> ClientNames:
        """Builds them from one name per client."""
        texts = [name.encode() for name in names]
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return ClientNames(np.frombuffer(b"".join(texts), np.uint8), ends)
