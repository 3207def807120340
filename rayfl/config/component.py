"""Parts of a scenario that are chosen by name and have options, such as penalties and tasks, and their defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import repeat
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError, field_validator
from pydantic_core import PydanticCustomError, PydanticSerializationError, to_json, to_jsonable_python

from rayfl.config.registry import (
    NONE,
    TOO_LARGE,
    Registry,
    call_with_options,
    check_options,
    default_options,
    nearest,
    parameters,
    reads_none,
    too_large,
)
from rayfl.config.section import Named, check_plain, may_be_open, with_nones
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


@dataclass(frozen=True)
class Choice:
    """A kind of part that scenarios choose by name and give options: `"adam"`, or `{ name = "adam", lr = 0.1 }`.

    Declared once for each kind. Its options are the fields of a class of `Options`, or the parameters of any other
    callable. A kind with more to it overrides `given_to`, `set_apart`, `target`, `build` or `resolve`.

    Attributes:
        registry: The registered names; any other name is an import path.
        base: The class that the part must derive from; None for any callable.
        given: Names of arguments that rayfl provides, which are not options.
        otherwise: What a message says about an object that cannot be called, with {} for its type; by default it may be
            any object.
        default: The name in a table without one; by default a table must have one.
        says_where: Whether a message about an unknown name begins with its key.
    """

    registry: Registry
    base: Any = None
    given: Sequence[str] = ()
    otherwise: str = ""
    default: str = ""
    says_where: bool = True

    def target(self, name: str, where: str = "") -> Any:
        """The class, function or object that a name stands for.

        Args:
            name: The name in the scenario.
            where: Its key path, for errors.

        Raises:
            ScenarioError: The name is unknown, or is not that of such a part.
        """
        target = self.registry.resolve(name, where if self.says_where else "")
        if self.base is None:
            if self.otherwise and not callable(target):
                raise ScenarioError(f"{where}: '{name}' {self.otherwise.format(type(target).__name__)}")
        elif not (isinstance(target, type) and issubclass(target, self.base)):
            public = f"{self.base.__module__.rpartition('.')[0]}.{self.base.__name__}"  # packages export base classes
            if not where:
                raise ScenarioError(f"{self.registry.kind} '{name}' does not derive from {public}")
            raise ScenarioError(f"{where}: '{name}' is not a class derived from {public}")
        elif where and (unwritten := getattr(target, "__abstractmethods__", None)):
            missing = ", ".join(sorted(unwritten))
            raise ScenarioError(f"{where}: '{name}' must define the abstract methods of its base class: {missing}")
        return target

    def given_to(self, target: Callable[..., Any], chosen: Named, where: str) -> Sequence[str]:
        """Names of the arguments that rayfl provides to a class or function, which are not options."""
        return self.given

    def set_apart(self, target: Callable[..., Any], chosen: Named, where: str) -> dict[str, Any]:
        """The options that rayfl reads itself, written out; the class or function gets all others.

        Raises:
            ScenarioError: One of them is wrong.
        """
        return {}

    def resolve(self, chosen: Any, where: str) -> Any:
        """The same choice with every option checked and written out.

        Args:
            chosen: A `Named`; the section with the choice if its name or options have their own keys there.
            where: Its key path, for errors.

        Raises:
            ScenarioError: As `target`; or an option is unknown, missing or out of range.
        """
        if self.base is not None and issubclass(self.base, Options):
            made, options = self.build(chosen, where), {}
            plain = made.model_dump(mode="json", exclude={"name"})
            for key, field in type(made).model_fields.items():
                value = _without_none(plain.get(key))
                if value is not None or (key in plain and (field.default_factory or field.default is not None)):
                    options[key] = _written(value, may_be_open(field), f"{where}.{key}")
        else:
            target = self.target(chosen.name, where)
            own, given = self._own(target, chosen, where), self.given_to(target, chosen, where)
            options = with_defaults(target, own, given, where) | self.set_apart(target, chosen, where)
        return Named.model_validate({**options, "name": chosen.name})

    def build(self, chosen: Any, where: str = "", **provided: Any) -> Any:
        """Makes the component, or calls the class or function.

        Args:
            chosen: A name, a table with `name` and options, or a `Named`.
            where: Its key path, for errors.
            provided: Arguments from rayfl; see `call_with_options`.

        Raises:
            ScenarioError: As `resolve`, or user code raised.
        """
        is_component = self.base is not None and issubclass(self.base, Component)
        if is_component and where:  # its options are named without their path
            try:
                return self.build(chosen)
            except ScenarioError as error:
                raise ScenarioError(f"{where}: {error}") from None
        named = self._named(chosen)
        target = self.target(named.name, where)
        if is_component:
            return with_options(target, {"name": named.name, **named.options})
        return call_with_options(target, self._own(target, named, where), provided, where)

    def bound(self, chosen: Named, where: str) -> Callable[..., Any]:
        """The function with its options, which takes the arguments that rayfl provides.

        Raises:
            ScenarioError: As `resolve`.
        """
        target = self.target(chosen.name, where)
        own, given = self._own(target, chosen, where), self.given_to(target, chosen, where)
        return partial(target, **check_options(target, own, given, where))

    @property
    def field(self) -> Any:
        """The annotation for a field with such a part."""

        def validate(value: Any) -> Any:
            if isinstance(value, self.base):
                return value
            try:
                return self.build(value)
            except ScenarioError as error:
                raise ValueError(str(error)) from None

        return Annotated[Any, PlainValidator(validate)]

    def _own(self, target: Callable[..., Any], chosen: Named, where: str) -> dict[str, Any]:
        apart = self.set_apart(target, chosen, where)
        return {key: value for key, value in chosen.options.items() if key not in apart}

    def _named(self, chosen: Any) -> Named:
        if isinstance(chosen, Named):
            return chosen
        if isinstance(chosen, Mapping) and "name" not in chosen:
            if not self.default:
                raise ScenarioError(f"name is missing: which {self.registry.kind}? {nearest('', list(self.registry))}")
            chosen = {"name": self.default, **chosen}
        if not isinstance(chosen, str | Mapping):
            raise ScenarioError("must be a name, or a table with a name and options")
        try:
            return Named.model_validate(chosen)
        except ValidationError as error:
            wrong = in_words(error, chosen).items()
            raise ScenarioError("\n".join(": ".join([*map(str, path), sentence]) for path, sentence in wrong)) from None


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
        return kind.model_validate_json(to_json(with_nones(kind, options)), strict=True)
    except ValidationError as error:
        raise ScenarioError(explain(error, kind, options, where and f"{where}.", also_known)) from None
    except (Exception, SystemExit) as error:  # a user's class may raise anything
        name = f"{kind.__module__}:{kind.__qualname__}"
        raise ScenarioError(report_as_theirs(error, f"{where}: {name}" if where else name)) from None


def with_defaults(
    target: Callable[..., Any], options: Mapping[str, Any], known: Iterable[str], where: str
) -> dict[str, Any]:
    """Checks options, and adds those left to their defaults.

    A default is left out if a scenario file cannot hold it (None, alone or in a list, or a value that is not plain), or
    if what is read from the file would be another value (an enum's text without an annotation) or rejected. So the
    written scenario can always be read again, and means the same.

    Args:
        target: The class or function that takes them.
        options: Plain values from the scenario.
        known: Names of arguments that rayfl provides, which are not options.
        where: Key path of the options, for errors.

    Raises:
        ScenarioError: `target` does not take an option, an option does not fit its annotation or cannot be written in a
            file, or a required option is missing.

    Example:
        >>> with_defaults(MLP, {}, ["num_classes", "input_shape"], "model")
        {'hidden': [200, 200]}
    """
    check_options(target, options, known, where)
    named, any_other = parameters(target, where)
    resolved = {}
    for key, value in options.items():
        parameter = named.get(key, any_other)
        assert parameter is not None  # as the options are checked
        if value is not None or parameter.default is not None:
            resolved[key] = _written(value, reads_none(parameter.annotation), f"{where}.{key}")
    for key, value in default_options(target, [*known, *options, "name"], where).items():
        try:
            plain = to_jsonable_python(value)
            if _holds_none(plain):
                continue
            check_plain({key: plain})
            read = check_options(target, {key: plain}, [*known, *options], where)[key]
        except (PydanticSerializationError, ValueError, ScenarioError):
            continue
        if _is_same(read, value, read is not plain):
            resolved[key] = plain
    return resolved


def _written(value: Any, none_is_read: bool, where: str) -> Any:
    """An option that is not at a default of None, as a scenario file holds it.

    Raises:
        ScenarioError: It is None or holds it, for which nothing in a file can stand.
    """
    if value is None and none_is_read:
        return NONE
    if not _holds_none(value):
        return value
    raise ScenarioError(
        f"{where}: None cannot be written in a scenario file; choose another value, or annotate the option with its "
        'type or None, such as `float | None`: then "none" stands for it'
    )


def _holds_none(plain: Any) -> bool:
    parts = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    return plain is None or any(_holds_none(part) for part in parts)


def _without_none(plain: Any) -> Any:
    """A value whose tables, at any depth, leave out what is None."""
    if isinstance(plain, dict):
        return {key: _without_none(value) for key, value in plain.items() if value is not None}
    return [_without_none(part) for part in plain] if isinstance(plain, list) else plain


def _is_same(read: Any, default: Any, by_type: bool) -> bool:
    """Whether a value that was read from a file is a default.

    Args:
        read: The value.
        default: The default.
        by_type: Whether it was read by the option's annotation, which then allows a list for a tuple.
    """
    if isinstance(default, list | tuple):
        kinds_fit = type(read) is type(default) or (by_type and type(read) in (list, tuple))
        return kinds_fit and len(read) == len(default) and all(map(_is_same, read, default, repeat(by_type)))
    if type(default) is dict and type(read) is dict:
        return [*read] == [*default] and all(_is_same(read[key], default[key], by_type) for key in read)
    numbers = isinstance(default, int | float) and type(read) in (int, float) and not isinstance(default, bool | Enum)
    return (numbers or type(read) is type(default)) and bool(read == default or (read != read and default != default))
