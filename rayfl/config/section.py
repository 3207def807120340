"""What every section of a scenario is: frozen, and closed to keys it does not know."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """A table of the scenario."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Named(BaseModel):
    """Something chosen by name, with options of its own: `"crop"` or `{ name = "crop", padding = 2 }`.

    The name is a registered one or `package.module:object`; the options are checked by what the name stands for.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})
