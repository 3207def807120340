"""PyTorch's generators, shared by client updates that are under way at once as if each had its own."""

from __future__ import annotations

import torch

from rayfl.engine.device import seed_torch
from rayfl.local.context import ClientContext


class TorchGenerators:
    """Gives every open client update its own state of PyTorch's global generators.

    Whoever runs code for a client (the algorithm's, the network's, an augmentation's) enters the client first. So what
    it draws does not depend on which updates are under way beside it, or on whether any are.

    Args:
        device: Where clients train; on CUDA its generator is kept as well as the CPU's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._current: int | None = None
        self._left: dict[int, tuple[torch.Tensor, ...]] = {}

    def enter(self, client: ClientContext) -> None:
        """Continues a client's sequence of random numbers; seeds it when the client, told by its id, is new."""
        if client.id == self._current:
            return
        if self._current is not None:
            self._left[self._current] = self._states()
        self._current = client.id
        if client.id in self._left:
            self._set(self._left.pop(client.id))
        else:
            # whatever an algorithm draws from PyTorch's own generator is the client's too
            seed_torch(client.streams.torch_seed("algorithm"), self._device)

    def forget(self) -> None:
        """Drops all states: the updates are over."""
        self._current, self._left = None, {}

    def _states(self) -> tuple[torch.Tensor, ...]:
        of_cpu = torch.default_generator.get_state()
        return (of_cpu, torch.cuda.get_rng_state(self._device)) if self._device.type == "cuda" else (of_cpu,)

    def _set(self, states: tuple[torch.Tensor, ...]) -> None:
        torch.default_generator.set_state(states[0])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(states[1], self._device)
