"""User code that misbehaves on a host, for the tests of how that is told."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayfl.algorithms.fedavg import FedAvg
from rayfl.algorithms.limits import SampleRequest
from rayfl.algorithms.scaffold import SCAFFOLD
from rayfl.local.requests import LocalTraining
from tests.algorithms.scene import TanhNet

if TYPE_CHECKING:
    import torch

    from rayfl.local.context import ClientContext

    Training = Generator[LocalTraining, torch.Tensor, torch.Tensor]


class Raising(FedAvg):
    """Client 5's code raises in every round."""

    def train(self, client: ClientContext, model: torch.Tensor, *terms: Any, **named: Any) -> Training:
        if client.id == 5:
            raise KeyError("no such column")
        return (yield from super().train(client, model, *terms, **named))


class Killed(FedAvg):
    """The host of client 5 dies in the middle of a client update, once: `mark` says whether it did."""

    mark: str

    def sample_requests(self) -> tuple[SampleRequest, ...]:
        return (SampleRequest(),)

    def train(self, client: ClientContext, model: torch.Tensor, *terms: Any, **named: Any) -> Training:
        if client.id == 5 and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return (yield from super().train(client, model, *terms, **named))


class LosesNode(FedAvg):
    """The first client update on the node with this address takes the whole node down: `mark` says that it did."""

    mark: str
    node: str

    def train(self, client: ClientContext, model: torch.Tensor, *terms: Any, **named: Any) -> Training:
        import ray

        if ray.util.get_node_ip_address() == self.node and not Path(self.mark).exists():
            Path(self.mark).touch()
            os.kill(int(os.environ["RAY_RAYLET_PID"]), signal.SIGKILL)
            time.sleep(60)  # this process follows its raylet
        return (yield from super().train(client, model, *terms, **named))


class Exiting(FedAvg):
    """Client 5's code ends its process every time."""

    def train(self, client: ClientContext, model: torch.Tensor, *terms: Any, **named: Any) -> Training:
        if client.id == 5:
            os._exit(1)
        return (yield from super().train(client, model, *terms, **named))


class Slow(FedAvg):
    """Client 5 takes its time."""

    def train(self, client: ClientContext, model: torch.Tensor, *terms: Any, **named: Any) -> Training:
        if client.id == 5:
            time.sleep(2)
        return (yield from super().train(client, model, *terms, **named))


class ExitingStateful(SCAFFOLD):
    """The same, where clients keep state."""

    def train(self, client: ClientContext, model: torch.Tensor, *terms: Any, **named: Any) -> Training:
        if client.id == 5:
            os._exit(1)
        return (yield from super().train(client, model, *terms, **named))


class Mended(FedAvg):
    """Client 5's code raises until it is mended: `mark` says that it is."""

    mark: str

    def train(self, client: ClientContext, model: torch.Tensor, *terms: Any, **named: Any) -> Training:
        if client.id == 5 and not Path(self.mark).exists():
            raise KeyError("no such column")
        return (yield from super().train(client, model, *terms, **named))


class Uneven(FedAvg):
    """Updates take a while, `factor` times as long in the process that was the first to train a client.

    Every process notes its clients in `folder`. The first update of client `hangs` never ends.
    """

    folder: str = ""
    seconds: float = 0.0
    factor: float = 1.0
    hangs: int = -1

    def train(self, client: ClientContext, model: torch.Tensor, *terms: Any, **named: Any) -> Training:
        if self.folder and in_actor():
            folder, own = Path(self.folder), str(os.getpid())
            with suppress(FileExistsError), (folder / "first").open("x") as first:
                first.write(own)
            with (folder / f"updates-{own}").open("a") as lines:
                lines.write(f"{client.id}\n")
            time.sleep(self.seconds * (self.factor if (folder / "first").read_text() == own else 1.0))
            if client.id == self.hangs and not (folder / "hung").exists():
                (folder / "hung").touch()
                time.sleep(10_000)
        return (yield from super().train(client, model, *terms, **named))


class SlowNet(TanhNet):
    """A step takes a tenth of a second on hosts."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if in_actor():
            time.sleep(0.1)
        return super().forward(x)


def in_actor() -> bool:
    import ray

    return ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
