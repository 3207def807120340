"""The learning curve on an algorithm's page, drawn by `tools.algorithm_curves`, and how it was made."""

from __future__ import annotations

from extensions.types_in_words import toml
from tools.algorithm_curves.settings import (
    BETA,
    CLIENTS,
    COHORT,
    NO_CURVE,
    REFERENCE,
    ROUNDS,
    SETTINGS,
    STEPS,
    Curve,
    curve_of,
)

COMMON = (
    f"{ROUNDS} rounds on Fashion-MNIST, split among {CLIENTS} clients by a Dirichlet({BETA}) distribution. In each "
    f"round, {COHORT} clients take {STEPS} steps each, on a network with one hidden layer. The options are not tuned "
    "and there is one seed, so the picture shows how the algorithm behaves, not how it ranks."
)


def as_markdown(name: str) -> str:
    """The section, or the reason why there is no curve."""
    if name in NO_CURVE:
        return f"No picture: {NO_CURVE[name]}"
    curve = curve_of(name)
    beside = "" if name == REFERENCE else ", with FedAvg in grey"
    image = f"{{image}} /figures/algorithms/{name}.png\n:alt: Test accuracy of {curve.label}{beside}\n:width: 480px"
    setting = COMMON, SETTINGS[curve.setting].words, _options(curve), curve.note
    parts = (
        f"```{image}\n```",
        " ".join(part for part in setting if part),
        f"```sh\npython -m tools.algorithm_curves {name}\n```",
        f"Records kept: {{repo}}`docs/records/algorithms/{curve.name}`.",
    )
    return "\n\n".join(parts)


def _options(curve: Curve) -> str:
    if not curve.options:
        return ""
    return "Options: " + ", ".join(f"`{key} = {toml(value)}`" for key, value in curve.options.items()) + "."
