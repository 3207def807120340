"""Rejects a network that does not fit into the memory of this machine, before its parameters are initialised."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from rayfl.errors import ScenarioError

COPIES = 3
"""A resident model takes memory for its original parameters, the flat vector, and the gradient."""


def machine_bytes() -> int:
    """Physical memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def within_memory(where: str) -> Iterator[None]:
    """Counts the parameters of a network while it is built.

    A layer allocates its parameters, registers them and then initialises them. Memory that is allocated but not yet
    written costs nothing, so an impossible layer raises before the machine begins to swap.

    Args:
        where: Key path of the table of the network, for messages.

    Raises:
        ScenarioError: The parameters, with their gradient, take more memory than the machine has.
    """
    values, limit = 0, machine_bytes()

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal values
        if parameter is None or nn.parameter.is_lazy(parameter):
            return
        values += parameter.numel()
        if 4 * COPIES * values > limit:
            raise ScenarioError(
                f"{where}: {values:,} parameters take {4 * COPIES * values / 2**30:,.0f} GB with their gradient, but "
                f"this machine has {limit / 2**30:,.0f} GB; make '{name}' of {type(module).__name__} smaller"
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()
