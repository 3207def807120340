"""Many runs of one scenario: what makes up a grid, how its cells are run, and what comes of them.

The package is also the function `rayfl.grid(...)`, which carries a grid out (`rayfl.grid.carrying_out`).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rayfl.grid.carrying_out import GridResult


class _Grid(ModuleType):
    """The package, which can be called: Python makes it an attribute of `rayfl` as soon as a part of it is loaded."""

    def __call__(self, *arguments: Any, **options: Any) -> GridResult:
        from rayfl.grid.carrying_out import grid

        return grid(*arguments, **options)


sys.modules[__name__].__class__ = _Grid
