"""The baseline ("naive limit"): plain PyTorch that trains client after client without any communication.

This is what a careful person writes first: an nn.Module, torch.optim.SGD, and batches indexed from a tensor. It has an
advantage over a simulator: the images are already normalised floats in memory, and no answers are sent. The process
imports only PyTorch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

RAY_NICENESS = 15
"""The niceness of Ray's workers, and of the processes that they are compared with."""

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Load:
    """The work: clients with this many samples, one epoch each."""

    clients: int
    samples: int
    batch_size: int
    lr: float


class LeNet5(nn.Module):
    """LeNet-5 as in the code of MOON: ReLU, then pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        x = F.relu(self.fc2(x))
        logits: torch.Tensor = self.fc3(x)
        return logits


class Trainer:
    """The clients of one process, and the global model that each of them starts from.

    Args:
        load: The work.
        model: The network; None for LeNet-5.
        device: Where it is trained, and where the images lie.
    """

    def __init__(self, load: Load, model: nn.Module | None = None, device: torch.device = CPU) -> None:
        self._load = load
        self._x = torch.randn(load.clients, load.samples, 3, 32, 32, device=device)
        self._y = torch.randint(0, 10, (load.clients, load.samples), device=device)
        self._model = (LeNet5() if model is None else model).to(device)
        self._global = {name: value.clone() for name, value in self._model.state_dict().items()}

    def train_client(self, client: int) -> int:
        """Trains one epoch with a fresh optimiser; returns the number of steps."""
        model = self._model
        model.load_state_dict(self._global)
        optimizer = torch.optim.SGD(model.parameters(), lr=self._load.lr)
        x, y, steps = self._x[client], self._y[client], 0
        for batch in torch.randperm(len(x), device=x.device).split(self._load.batch_size):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            steps += 1
        return steps

    def train_for(self, seconds: float) -> float:
        """Trains client after client for about this long; returns steps per second."""
        start, steps, client = time.perf_counter(), 0, 0
        while (elapsed := time.perf_counter() - start) < seconds:
            steps += self.train_client(client % self._load.clients)
            client += 1
        if self._x.is_cuda:  # which still computes what was submitted
            torch.cuda.synchronize()
            elapsed = time.perf_counter() - start
        return steps / elapsed


def naive_limit(processes: int, load: Load, seconds: float) -> float:
    """Returns the total steps per second of several plain processes, which share the clients."""
    share = [load.clients // processes, load.samples, load.batch_size, load.lr, seconds]
    command = [sys.executable, "-m", "tools.bench.naive", *map(str, share)]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for worker in workers:  # wait until all have loaded PyTorch and created their data
        assert worker.stdout is not None
        worker.stdout.readline()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return sum(float(worker.communicate()[0]) for worker in workers)


def main(clients: str, samples: str, batch_size: str, lr: str, seconds: str) -> None:
    os.nice(RAY_NICENESS)
    torch.set_num_threads(1)
    trainer = Trainer(Load(int(clients), int(samples), int(batch_size), float(lr)))
    trainer.train_client(0)
    print("ready", flush=True)
    sys.stdin.readline()
    print(trainer.train_for(float(seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
