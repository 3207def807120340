"""[start]: weights that the model starts from instead of random ones."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from rayfl.config.section import Section, check_idle, check_plain

KINDS = ("file", "run", "weights", "scenario")


class Start(Section):
    """Where the initial weights come from: exactly one of `file`, `run`, `weights` and `scenario`.

    Weights are matched by parameter name; every name must exist on both sides with the same shape, except where `head`
    and `ignore` say otherwise. Relative paths are relative to the file that names them; paths on a command line or in a
    program are relative to the working directory.

    Attributes:
        file: A .safetensors file, or a file written by torch.save that contains only tensors (a state dict). By default
            another key says where the weights come from.
        run: The folder of a finished run. By default another key says where the weights come from.
        weights: Published weights of a torchvision network, such as `torchvision:ResNet18_Weights.IMAGENET1K_V1`, which
            torchvision downloads or finds in its cache. By default another key says where the weights come from.
        scenario: A name or path. That scenario runs first and its final model is kept; it runs again only if something
            that it depends on has changed. By default another key says where the weights come from.
        overrides: Overrides of that scenario, in the form of a [quick] table. A `seed` among them also applies to the
            scenario that it starts from in turn. Default: none.
        quick: Runs that scenario in its quick form, and the one that it starts from in turn if that has a quick form.
            Default: false.
        head: Whether the feature layer takes its weights from the start (`keep`, the default) or keeps its initial
            values (`fresh`).
        rename: Replaces the beginnings of names in the start: `{ "net." = "" }` removes the prefix that a wrapper adds
            to all names, `{ "" = "encoder." }` adds a prefix. If several fit, the longest applies. All else, `head` and
            `ignore` included, uses the new names. Default: none.
        ignore: Shell patterns ("layer4.*") of names that stay as initialised or are not used. Default: none.
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
