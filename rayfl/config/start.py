"""[start]: what the model begins with, instead of random weights."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from rayfl.config.section import Section, check_idle, check_plain

KINDS = ("file", "run", "weights", "scenario")


class Start(Section):
    """Where the initial weights come from; exactly one of `file`, `run`, `weights` and `scenario`.

    Weights are matched by parameter name, and every name must be on both sides with the same shape, except for what
    `head` and `ignore` say. Relative paths are beside the file that names them; those of a command line or a program
    are relative to the working directory.

    Attributes:
        file: A .safetensors file, or a file that torch.save wrote with nothing but tensors in it (a state dict).
        run: The folder of a finished run.
        weights: `torchvision:ResNet18_Weights.IMAGENET1K_V1`, the published weights of one of torchvision's networks,
            which torchvision downloads or finds in its cache.
        scenario: A name or path. That scenario is run first and its final model kept; it is run again only if something
            that it depends on has changed.
        overrides: Of that scenario: tables like those of [quick]. A `seed` among them also reaches what that scenario
            itself starts from.
        quick: Whether that scenario is run in its quick form, and what that starts from itself, if it has one.
        head: `keep` takes the feature layer's weights from the start too, `fresh` leaves them as initialised.
        rename: By what names of the start begin, what they begin with in this model: `{ "net." = "" }` takes off the
            prefix that a wrapper puts before all of them, `{ "" = "encoder." }` puts one before. Of several that fit,
            the longest counts. What follows, `head` and `ignore` too, sees the new names.
        ignore: Shell patterns ("layer4.*") of names that stay as initialised, or are not used.
    """

    file: str | None = None
    run: str | None = None
    weights: str | None = None
    scenario: str | None = None
    overrides: dict[str, Any] = Field(default_factory=dict)
    quick: bool = False
    head: Literal["keep", "fresh"] = "keep"
    rename: dict[str, str] = Field(default_factory=dict)
    ignore: tuple[str, ...] = ()

    @field_validator("overrides")
    @classmethod
    def _overrides_are_plain(cls, overrides: dict[str, Any]) -> dict[str, Any]:
        check_plain(overrides)
        return overrides

    @model_validator(mode="after")
    def _one_kind(self) -> Start:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(KINDS)} (given: {', '.join(given) or 'none'})")
        alone = self.scenario is None
        check_idle(self, {"overrides": alone, "quick": alone}, "without a scenario to start from")
        return self
