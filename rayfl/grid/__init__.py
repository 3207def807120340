"""Many runs of one scenario: the schema of a grid, the runs of its cells, and its tables.

The package is also the function `rayfl.grid(...)`, which runs a grid (`rayfl.grid.carrying_out`).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rayfl.grid.carrying_out import GridResult


class _Grid(ModuleType):
    """A callable package: Python makes it an attribute of `rayfl` as soon as one of its modules is imported."""

    def __call__(self, *arguments: Any, **options: Any) -> GridResult:
        from rayfl.grid.carrying_out import grid

        return grid(*arguments, **options)


sys.modules[__name__].__class__ = _Grid
