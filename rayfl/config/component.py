"""Parts of a scenario that are chosen by name and have options, such as penalties and tasks, and their defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, field_validator
from pydantic_core import PydanticCustomError, PydanticSerializationError, to_json, to_jsonable_python

from rayfl.config.registry import TOO_LARGE, Registry, check_options, default_options, nearest, too_large
from rayfl.config.section import Named, check_plain
from rayfl.config.validation import explain
from rayfl.errors import ScenarioError
from rayfl.wording import in_words, report_as_theirs


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


def with_defaults(chosen: Named, target: Callable[..., Any], known: Iterable[str], where: str) -> Named:
    """The same choice with its options checked and its default options written out.

    A default is left out if a scenario file cannot hold it (None, alone or in a list, or a value that is not plain) or
    if its own annotation rejects it, so the written scenario can always be read again.

    Args:
        chosen: A name with options.
        target: The class or function behind the name.
        known: Names of arguments that rayfl provides, which are not options.
        where: The key path of the choice, for errors.

    Raises:
        ScenarioError: `target` does not take an option, an option does not fit its annotation, or a required option is
            missing.

    Example:
        >>> with_defaults(Named(name="mlp"), MLP, ["num_classes", "input_shape"], "model")
        Named(name='mlp', hidden=[200, 200])
    """
    known = list(known)
    check_options(target, chosen.options, known, where)
    options = dict(chosen.options)
    for key, value in default_options(target, [*known, *options], where).items():
        try:
            plain = to_jsonable_python(value)
            if _holds_none(plain):
                continue
            check_plain({key: plain})
            check_options(target, {key: plain}, [*known, *options], where)
        except (PydanticSerializationError, ValueError, ScenarioError):
            continue
        options[key] = plain
    return Named.model_validate({**options, "name": chosen.name})


def _holds_none(plain: Any) -> bool:
    parts = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    return plain is None or any(_holds_none(part) for part in parts)
