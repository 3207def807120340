"""`rayfl.Result`: the result of a run."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rayfl.config.scenario import Scenario
from rayfl.errors import RayflError
from rayfl.notebook import is_shown
from rayfl.runs.archive import RunArchive
from rayfl.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from rayfl.engine.plan.headline import Headline

SHOWN = 5
"""Number of the last evaluated rounds that a notebook shows."""


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run; a notebook shows its last rounds and its curves.

    Attributes:
        scenario: The scenario as it ran, with every default.
        metrics: One row per evaluated round: the columns of `rayfl.engine.columns.METRICS`, then reported scalars.
        state_dict: The final model, with PyTorch's names and layout, on the CPU.
        directory: The folder with the records; for a run at a URI, a copy that exists as long as the result.
        uri: Where the records are, for a run at a URI; else None.
        shown_in: The number of the notebook's cell whose output ended as this result, which is not shown twice.

    Example:
        >>> import rayfl
        >>> scenario = {
        ...     "name": "tiny",
        ...     "data": {"name": "handwriting", "clients": 4},
        ...     "model": "mlp",
        ...     "phases": [{"schedule": "parallel", "rounds": 1, "cohort": 2}],
        ... }
        >>> result = rayfl.run(scenario, backend="inline", quiet=True)
        >>> result
        <Result tiny: 1 round, best test accuracy ... % in round 1, in ...>
        >>> result.metrics["test_accuracy"].to_pylist()
        [...]
        >>> sum(value.numel() for value in result.state_dict.values())
        209662
        >>> (result.directory / "model.safetensors").is_file()
        True
    """

    scenario: Scenario
    metrics: pa.Table
    state_dict: dict[str, torch.Tensor]
    directory: Path
    uri: str | None = None
    shown_in: int | None = None

    def __repr__(self) -> str:
        return f"<Result {self._summary()}, in {self.uri or self.directory}>"

    def _repr_html_(self) -> str:
        from rayfl.callbacks.live_table import metrics_table

        if is_shown(self):
            return ""
        table = metrics_table(self._summary(), self.metrics[-SHOWN:].to_pylist(), self._headline()).html()
        curves = self.directory / "curves.png"
        if not curves.is_file():
            return table
        picture = b64encode(curves.read_bytes()).decode()
        style = "max-width: min(760px, 100%)"
        return f'{table}<img alt="learning curves" style="{style}" src="data:image/png;base64,{picture}">'

    def _summary(self) -> str:
        """`femnist_cyclic: 20 rounds, best test accuracy 63.10 % in round 18`."""
        rows = self.metrics.to_pylist()
        rounds = f"{self.scenario.name}: {counted(rows[-1]['round'] if rows else 0, 'round')}"
        headline = self._headline()
        ranked = [row for row in rows if headline and headline.ranks(row["phase"])]
        if headline is None or not ranked:
            return rounds
        scores = [float("nan") if row[headline.column] is None else row[headline.column] for row in ranked]
        best = ranked[headline.best(scores)]
        ranked_by, result = (
            "undefined or not finite" if best[column] is None else headline.text(best[column])
            for column in (headline.column, headline.reported)
        )
        said = f"{rounds}, best {headline.words} {ranked_by} in round {best['round']}"
        elsewhere = headline.column != headline.reported
        return said + (f", {headline.reported_words} in that round {result}" if elsewhere else "")

    def _headline(self) -> Headline | None:
        """The metric that ranks rounds, from the records; None if they are gone."""
        try:
            return RunArchive(self.directory).headline
        except RayflError:  # a missing folder must not prevent printing a result
            return None
