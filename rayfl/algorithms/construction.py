"""Builds the algorithms, transforms and samplers that a scenario names, and expands presets.

Presets are names for well-known combinations; FedProx is FedAvg with a proximal regulariser.
`algorithm = { name = "fedprox", mu = 0.01 }` is short for
`algorithm = { name = "fedavg", penalties = [{ name = "proximal", mu = 0.01 }] }`, and
`algorithm = { name = "fedadam", lr = 0.1 }` for
`algorithm = { name = "fedavg", server_optimizer = { name = "adam", lr = 0.1 } }`.
A preset takes the options of its part and those of the algorithm. It also accepts the general form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from rayfl.algorithms import algorithms
from rayfl.algorithms.algorithm import Algorithm
from rayfl.algorithms.exchange import Asked
from rayfl.algorithms.fedopt import server_optimizers
from rayfl.algorithms.limits import Requirement
from rayfl.algorithms.penalty import penalties
from rayfl.algorithms.sampler import CohortSampler, samplers
from rayfl.algorithms.transforms import AnswerTransform, answer_transforms
from rayfl.config.cohort import BySampler
from rayfl.config.component import Choice, with_options
from rayfl.config.local import Local
from rayfl.config.phase import Phase
from rayfl.config.section import Named
from rayfl.errors import ScenarioError
from rayfl.local.state import Scope
from rayfl.wording import report_as_theirs


@dataclass(frozen=True)
class Preset:
    """FedAvg with one of its parts chosen.

    Attributes:
        penalty: Registered name of its only regulariser.
        server_optimizer: Registered name of its server optimizer.
    """

    penalty: str | None = None
    server_optimizer: str | None = None

    def part(self) -> tuple[str, Any]:
        """Returns the registered name of the chosen part, and its class."""
        registry, name = (penalties, self.penalty) if self.penalty else (server_optimizers, str(self.server_optimizer))
        return name, registry.resolve(name)

    def own_fields(self) -> list[str]:
        """Returns the options of the chosen part, which a scenario writes beside those of the algorithm."""
        return [field for field in self.part()[1].model_fields if field != "name"]

    def expand(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the options in the general form.

        Raises:
            ScenarioError: The general form is given without the preset's own part, and so describes another algorithm.
        """
        name, own_fields = self.part()[0], self.own_fields()
        part: Any = {"name": name} | {key: value for key, value in options.items() if key in own_fields}
        rest = {key: value for key, value in options.items() if key not in own_fields}
        if self.penalty:
            return {"penalties": _with(rest.pop("penalties", [{"name": name}]), part), **rest}
        chosen = rest.pop("server_optimizer", {})
        named = {"name": name, **chosen} if isinstance(chosen, Mapping) else chosen
        return {"server_optimizer": _with([named], part)[0], **rest}


def _with(chosen: Any, part: Mapping[str, Any]) -> Any:
    """Returns the chosen parts, with options overriding those of the part of the same name."""
    if not (isinstance(chosen, list | tuple) and all(isinstance(choice, str | Mapping) for choice in chosen)):
        return chosen  # validation will say what is wrong
    tables = [{"name": choice} if isinstance(choice, str) else choice for choice in chosen]
    if all(table.get("name") != part["name"] for table in tables):
        raise ScenarioError(
            f"this preset stands for '{part['name']}', but the parts given here do not include it; use the algorithm "
            "'fedavg' for other parts"
        )
    return [{**table, **part} if table.get("name") == part["name"] else table for table in tables]


PRESETS = {
    "fedprox": Preset(penalty="proximal"),
    "moon": Preset(penalty="contrastive"),
    "feddecorr": Preset(penalty="decorrelation"),
    "fedavgm": Preset(server_optimizer="momentum"),
    "fedadagrad": Preset(server_optimizer="adagrad"),
    "fedadam": Preset(server_optimizer="adam"),
    "fedyogi": Preset(server_optimizer="yogi"),
}


class _Algorithms(Choice):
    def build(self, chosen: Any, where: str = "", **provided: Any) -> Algorithm:
        kind, preset, options = self.target(chosen.name, where), PRESETS.get(chosen.name), chosen.options
        own_fields: list[str] = preset.own_fields() if preset else []
        if preset:
            own = {key: value for key, value in options.items() if key in own_fields}
            with_options(preset.part()[1], own, where)  # here, errors name the keys as the scenario writes them
            try:
                options = preset.expand(options)
            except ScenarioError as error:
                raise ScenarioError(f"{where}: {error}") from None
        algorithm: Algorithm = with_options(kind, options, where, own_fields)
        _check_declarations(algorithm, where)
        return algorithm


class _Samplers(Choice):
    def build(self, chosen: Any, where: str = "", **provided: Any) -> CohortSampler:
        sampler: CohortSampler = with_options(self.target(chosen.name, f"{where}.sampler"), chosen.options, where)
        return sampler

    def resolve(self, chosen: Any, where: str) -> Any:
        if not isinstance(chosen, BySampler):
            return chosen
        return BySampler(sampler=chosen.sampler, **super().resolve(_sampler(chosen, where), where).options)


def _sampler(cohort: BySampler, where: str) -> Named:
    if "name" in cohort.options:
        raise ScenarioError(f"{where}.name: is not an option; '{where}.sampler' names the sampler. Leave it out")
    return Named(name=cohort.sampler, **cohort.options)


ALGORITHMS = _Algorithms(algorithms, Algorithm, says_where=False)
SAMPLERS = _Samplers(samplers, CohortSampler)
TRANSFORMS = Choice(answer_transforms, AnswerTransform)


def build_algorithm(phase: Phase) -> Algorithm:
    """Builds a phase's algorithm with its hyperparameters.

    Raises:
        ScenarioError: The name is unknown or is not an algorithm, a hyperparameter is unknown or out of range, or a
            user's own class raises an exception or makes an invalid declaration.
    """
    return ALGORITHMS.build(phase.algorithm, f"phases.{phase.name}.algorithm")


def _check_declarations(algorithm: Algorithm, where: str) -> None:
    """Checks everything an algorithm declares, once, so that later callers can rely on it."""
    for method in ("client_state", "server_state"):
        declared = _said(algorithm, method, where)
        if not (isinstance(declared, Mapping) and all(scope in get_args(Scope) for scope in declared.values())):
            raise ScenarioError(
                f"{where}: {type(algorithm).__name__}.{method}() must return a scope for every name, one of "
                f"{', '.join(get_args(Scope))}, like {{'control': 'phase'}}, not {declared!r}"
            )
    wanted, known = _said(algorithm, "requirements", where), set(get_args(Requirement))
    if not (isinstance(wanted, set) and wanted <= known):
        raise ScenarioError(
            f"{where}: {type(algorithm).__name__}.requirements() must return a set of {', '.join(sorted(known))}, "
            f"not {wanted!r}"
        )
    asked = _said(algorithm, "asks", where)
    if not (isinstance(asked, tuple) and asked and set(asked) <= set(get_args(Asked))):
        raise ScenarioError(
            f"{where}: {type(algorithm).__name__}.asks() must return, for each exchange of a round, one of "
            f"{', '.join(map(repr, get_args(Asked)))}, not {asked!r}"
        )
    keys = _said(algorithm, "local_keys", where)
    if not (keys is None or (isinstance(keys, frozenset) and keys <= Local.model_fields.keys())):
        raise ScenarioError(
            f"{where}: {type(algorithm).__name__}.local_keys() must return None or a frozenset of keys of local, "
            f"not {keys!r}"
        )
    if not isinstance(reason := _said(algorithm, "assumes_sgd", where), str):
        raise ScenarioError(
            f"{where}: {type(algorithm).__name__}.assumes_sgd() must return a reason or empty text, not {reason!r}"
        )
    for method in ("reads_first_model", "buffers_are_sent"):
        if not isinstance(result := _said(algorithm, method, where), bool):
            raise ScenarioError(f"{where}: {type(algorithm).__name__}.{method}() must return a bool, not {result!r}")


def _said(algorithm: Algorithm, method: str, where: str) -> Any:
    try:
        return getattr(algorithm, method)()
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    except (Exception, SystemExit) as error:
        raise ScenarioError(report_as_theirs(error, f"{where}: {type(algorithm).__name__}.{method}()")) from None


def build_transforms(phase: Phase) -> list[AnswerTransform]:
    """Builds the transforms of a phase's answers, in the order in which they apply.

    Raises:
        ScenarioError: As `build_algorithm`.
    """
    where = f"phases.{phase.name}.transforms"
    return [TRANSFORMS.build(chosen, f"{where}.{index}") for index, chosen in enumerate(phase.settings.transforms)]


def build_sampler(phase: Phase) -> CohortSampler:
    """Builds the sampler that draws a phase's cohorts.

    Raises:
        ScenarioError: As `build_algorithm`.
    """
    cohort, where = phase.settings.cohort, f"phases.{phase.name}.cohort"
    assert isinstance(cohort, BySampler)
    return SAMPLERS.build(_sampler(cohort, where), where)
