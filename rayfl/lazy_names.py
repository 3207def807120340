"""Imports public names of a package on first use, so importing one name does not load all of them, or PyTorch.

A package writes its public names once, as imports for type checkers:

    if TYPE_CHECKING:
        from rayfl.models.network import Network as Network
    else:
        __getattr__, __dir__ = lazy_names(__name__)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def lazy_names(package: str, *own: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes the `__getattr__` of a package, which also finds `__all__`, and its `__dir__`.

    Args:
        package: The dotted name of the package.
        own: Public names that it defines itself.
    """

    def find(name: str) -> Any:
        if name == "__all__":
            return public_names()
        if name not in homes(package):
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(import_module(homes(package)[name]), name)

    def public_names() -> list[str]:
        return sorted([*own, *homes(package)])

    return find, public_names


@cache
def homes(package: str) -> dict[str, str]:
    """Returns the module of each public name of a package: its imports `as` the same name for type checkers.

    Raises:
        ImportError: The source of the package is not available.
    """
    import ast  # importing rayfl takes a tenth longer with it

    loader: Any = getattr(import_module(package).__spec__, "loader", None)
    source = loader.get_source(package)
    if source is None:
        raise ImportError(
            f"the public names of {package} are read from its source, which is not installed: keep .py files"
        )
    return {
        imported.name: str(statement.module)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for imported in statement.names
        if imported.asname == imported.name
    }
