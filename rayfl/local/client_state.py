"""The named tensors that a client keeps between exchanges."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import torch

from rayfl.errors import RayflError

BUFFER_OF = "@"
"""Separates a state's name from that of a buffer that is kept beside it: `personal@norm.initialised`."""


class ClientState(MutableMapping[str, torch.Tensor]):
    """Named tensors that a client keeps between exchanges; an algorithm reads it as `ClientContext.state`.

    It behaves like a dictionary. Changes take effect once the round is committed. The algorithm, the task, or an option
    of local training must declare every name with its scope (`round`, `phase` or `run`); reading or setting an
    undeclared name raises RayflError.

    Args:
        tensors: The kept tensors, on the client's device; a copy for this client update.
        declared: The declared names.

    Example:
        >>> import torch
        >>> from rayfl.local import ClientState
        >>> state = ClientState({}, declared=frozenset({"control"}))
        >>> state.get("control", torch.zeros(2))
        tensor([0., 0.])
        >>> state["control"] = torch.ones(2)
        >>> list(state)
        ['control']
    """

    def __init__(self, tensors: dict[str, torch.Tensor], declared: frozenset[str]) -> None:
        self._tensors, self._declared = tensors, declared

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._tensors:
            self._check_declared(name)
        return self._tensors[name]

    def __setitem__(self, name: str, tensor: torch.Tensor) -> None:
        self._check_declared(name)
        self._tensors[name] = tensor

    def keep_buffer(self, name: str, buffer: str, tensor: torch.Tensor) -> None:
        """Keeps an integer or boolean buffer of the network beside a declared name."""
        self._check_declared(name)
        self._tensors[f"{name}{BUFFER_OF}{buffer}"] = tensor

    def kept_buffer(self, name: str, buffer: str) -> torch.Tensor | None:
        """Returns a buffer kept beside a declared name, if there is one."""
        self._check_declared(name)
        return self._tensors.get(f"{name}{BUFFER_OF}{buffer}")

    def __delitem__(self, name: str) -> None:
        del self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def _check_declared(self, name: str) -> None:
        if name not in self._declared:
            raise RayflError(
                f"client state '{name}' is not declared; return it, with its scope, from client_state() of the "
                f"algorithm or the task (declared: {', '.join(sorted(self._declared)) or 'none'})"
            )
