"""Shares PyTorch's generators between concurrent client updates as if each had its own."""

from __future__ import annotations

import torch

from rayfl.engine.device import seed_torch
from rayfl.local.context import ClientContext


class TorchGenerators:
    """Gives every open client update its own state of PyTorch's global generators.

    Enter a client before running code on its behalf (algorithm, network or augmentation). Its draws then do not depend
    on other updates under way.

    Args:
        device: Device that clients train on; on CUDA its generator is kept as well as the CPU's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._current: int | None = None
        self._left: dict[int, tuple[torch.Tensor, ...]] = {}

    def enter(self, client: ClientContext) -> None:
        """Continues a client's sequence of random numbers, or seeds it if the client's id is new."""
        if client.id == self._current:
            return
        if self._current is not None:
            self._left[self._current] = self._states()
        self._current = client.id
        if client.id in self._left:
            self._set(self._left.pop(client.id))
        else:
            # draws of an algorithm from PyTorch's global generator belong to the client, too
            seed_torch(client.streams.torch_seed("algorithm"), self._device)

    def forget(self) -> None:
        """Drops all states when the updates are over."""
        self._current, self._left = None, {}

    def _states(self) -> tuple[torch.Tensor, ...]:
        of_cpu = torch.default_generator.get_state()
        return (of_cpu, torch.cuda.get_rng_state(self._device)) if self._device.type == "cuda" else (of_cpu,)

    def _set(self, states: tuple[torch.Tensor, ...]) -> None:
        torch.default_generator.set_state(states[0])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(states[1], self._device)
