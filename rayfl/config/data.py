"""[data]: which examples, how many clients, and how the examples are spread over them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from rayfl.config.normalizations import NORMALIZATIONS
from rayfl.config.section import Named, Section, check_plain
from rayfl.registry import nearest


class Normalization(Section):
    """Per channel, after pixels were scaled to [0, 1]: (x - mean) / std. A paper's name stands for its numbers."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value not in NORMALIZATIONS:
            raise ValueError(f"unknown normalization; {nearest(value, NORMALIZATIONS)} (or give mean and std)")
        mean, std = NORMALIZATIONS[value]
        return {"mean": mean, "std": std}

    @model_validator(mode="after")
    def _one_std_per_mean(self) -> Normalization:
        if len(self.mean) != len(self.std) or any(s <= 0 for s in self.std):
            raise ValueError("mean and std need one value per channel, std above 0")
        return self


class Data(Section):
    """The data set and its clients.

    name: a registered source, or `package.module:object` of your own: a callable that returns a
        `rayfl.data.Dataset` or (train_x, train_y, test_x, test_y), or such a value itself.
    source: `auto` reads files where they are and otherwise generates a stand-in, and says which; `files` never
        falls back; `generated` never looks for files.
    clients: how many; of a natural partition, that many of its clients are drawn with the scenario's seed
        (default: all); the other partitions need it.
    partition: by default natural where the data names its clients, IID elsewhere.
    normalize: a name of `rayfl.config.normalizations`, or mean and std; by default none (images in [0, 1]).
    augment: applied to training batches in the order given.
    options: keyword arguments of the source, such as `labels = "coarse"` of cifar100.
    """

    name: str
    source: Literal["auto", "files", "generated"] = "auto"
    clients: PositiveInt | None = None
    partition: Named | None = None
    normalize: Normalization | None = None
    augment: tuple[Named, ...] = ()
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("options")
    @classmethod
    def _options_are_plain(cls, options: dict[str, Any]) -> dict[str, Any]:
        check_plain(options)
        return options
