"""User code that misbehaves on a host, for the tests of how that is told."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rayfl.algorithms.fedavg import FedAvg

if TYPE_CHECKING:
    import torch

    from rayfl.local.client import Client


class Raising(FedAvg):
    """Client 5's code raises in every round."""

    def local_update(self, client: Client, received: torch.Tensor) -> torch.Tensor:
        if client.id == 5:
            raise KeyError("no such column")
        return super().local_update(client, received)


class Killed(FedAvg):
    """The host of client 5 dies in the middle of a visit, once: `mark` says whether it did."""

    mark: str

    def local_update(self, client: Client, received: torch.Tensor) -> torch.Tensor:
        if client.id == 5 and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().local_update(client, received)


class Slow(FedAvg):
    """Client 5 takes its time."""

    def local_update(self, client: Client, received: torch.Tensor) -> torch.Tensor:
        if client.id == 5:
            time.sleep(2)
        return super().local_update(client, received)
