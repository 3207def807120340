"""The section of a grid for an analysis of its finished runs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, NonNegativeInt

from rayfl.config.section import PlainOptions, Section, check_plain


class GridAnalysis(Section):
    """An analysis of finished runs, drawn once they have finished. All other keys are options of the analysis.

    Attributes:
        name: An analysis of `rayfl analyse`, or `package.module:Class` for your own.
        only: Cells whose runs are analysed, as `"row/column"`, with * for any. Cells in `skip` are left out. By default
            all others.
        seeds: Seeds of these runs. By default the first of the grid.
        label: Name of its files in the folder `analyses`. By default that of the analysis.
        quick: Options to change with --quick. Default: none.
    """

    model_config = ConfigDict(extra="allow")

    name: str
    only: Annotated[tuple[str, ...], Field(min_length=1)] = ("*/*",)
    seeds: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)] | None = None
    label: str = ""
    quick: PlainOptions = Field(default_factory=dict)

    @property
    def heading(self) -> str:
        """Its label, or else the name of the analysis."""
        return self.label or self.name

    def options(self, quick: bool = False) -> dict[str, Any]:
        """The name and options of the analysis.

        Args:
            quick: Whether those of `quick` take precedence.

        Raises:
            ValueError: A file cannot hold an option.
        """
        options = {**(self.model_extra or {}), **(self.quick if quick else {}), "name": self.name}
        check_plain(options)
        return options
