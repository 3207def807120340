"""Parts of a scenario that are chosen by name and have options: penalties, server optimisers, tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, field_validator
from pydantic_core import PydanticCustomError, to_json

from rayfl.config.section import Named
from rayfl.config.validation import explain
from rayfl.errors import ScenarioError
from rayfl.registry import TOO_LARGE, Registry, nearest, too_large
from rayfl.user_code import report_as_theirs
from rayfl.wording import in_words


class Options(BaseModel):
    """Options of a part of a scenario: they never change, and numbers are finite within float32."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _within_float32(cls, value: Any) -> Any:
        if too_large(value):
            raise PydanticCustomError("number", TOO_LARGE)
        return value


class Component(Options):
    """A part with options: `"adam"` or `{ name = "adam", lr = 0.1 }`.

    Attributes:
        name: Its name in the scenario.
    """

    name: str = ""


def build_component(registry: Registry, base: Any, chosen: Any, default: str = "") -> Any:
    """Builds the component that a scenario chose.

    Args:
        registry: The registered names; any other name is an import path.
        base: The class that it must derive from.
        chosen: A name, or a table with `name` and options.
        default: The name in a table without one; by default a table must have one.

    Raises:
        ScenarioError: The name is unknown or is no such component, or an option is unknown or out of range.
    """
    if isinstance(chosen, Mapping) and "name" not in chosen:
        if not default:
            raise ScenarioError(f"name is missing: which {registry.kind}? {nearest('', list(registry))}")
        chosen = {"name": default, **chosen}
    if not isinstance(chosen, str | Mapping | Named):
        raise ScenarioError("must be a name, or a table with a name and options")
    try:
        named = chosen if isinstance(chosen, Named) else Named.model_validate(chosen)
    except ValidationError as error:
        wrong = in_words(error, chosen).items()
        raise ScenarioError("\n".join(": ".join([*map(str, path), sentence]) for path, sentence in wrong)) from None
    kind = registry.resolve(named.name)
    if not (isinstance(kind, type) and issubclass(kind, Component) and issubclass(kind, base)):
        raise ScenarioError(f"{registry.kind} '{named.name}' does not derive from {_public_name(base)}")
    return with_options(kind, {"name": named.name, **named.options})


def with_options(kind: Any, options: Mapping[str, Any], where: str = "", also_known: Sequence[str] = ()) -> Any:
    """Makes a component or an algorithm with the options from a scenario.

    Args:
        kind: Its class.
        options: Options by name.
        where: Their key path, for errors.
        also_known: Other names that errors may suggest.

    Raises:
        ScenarioError: An option is unknown or out of range, or the class raised.
    """
    try:
        # strict rejects true and "1" for the number 1; JSON accepts a list for a tuple
        return kind.model_validate_json(to_json(options), strict=True)
    except ValidationError as error:
        raise ScenarioError(explain(error, kind, options, where and f"{where}.", also_known)) from None
    except (Exception, SystemExit) as error:  # a user's class may raise anything
        name = f"{kind.__module__}:{kind.__qualname__}"
        raise ScenarioError(report_as_theirs(error, f"{where}: {name}" if where else name)) from None


def component_field(registry: Registry, base: Any, default: str = "") -> Any:
    """The annotation for a field with a component; arguments as for `build_component`."""

    def validate(value: Any) -> Any:
        if isinstance(value, base):
            return value
        try:
            return build_component(registry, base, value, default)
        except (ScenarioError, ValidationError) as error:
            raise ValueError(str(error)) from None

    return Annotated[Any, PlainValidator(validate)]


def _public_name(kind: type) -> str:
    """The exported name: packages export their base classes, such as `rayfl.tasks.Task` from `rayfl.tasks.task`."""
    return f"{kind.__module__.rpartition('.')[0]}.{kind.__name__}"
