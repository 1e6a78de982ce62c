"""What a group of settings is: typed keys with bounds, checked as it is made."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from pixiu.model.errors import ConfigError

__all__ = ["Bounds", "Count", "Milliseconds", "Port", "Positive", "Section", "key_types", "plain_type"]

_TYPE_NAMES: dict[object, str] = {int: "a whole number", bool: "true or false", str: "a text"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The smallest and largest value that a number may have; None is no bound."""

    at_least: int | None = None
    at_most: int | None = None


class Section:
    """A group of settings that checks its own values as it is made."""

    __slots__ = ()
    name_in_file: ClassVar[str]
    may_be_empty: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for key, hint in key_types(type(self)).items():
            value = getattr(self, key)
            _check(f"{self.name_in_file}.{key}", value, hint)
            if value == "" and key not in self.may_be_empty:
                raise ConfigError(f"{self.name_in_file}.{key} must not be empty")


Port = Annotated[int, Bounds(0, 65535)]
Count = Annotated[int, Bounds(0)]
Positive = Annotated[int, Bounds(1)]
Milliseconds = Annotated[int, Bounds(1, 7 * 86_400_000)]


def key_types(section: type[Section]) -> dict[str, Any]:
    """The keys of a section, in order, with their annotated types."""
    hints = get_type_hints(section, include_extras=True)
    return {key.name: hints[key.name] for key in fields(section)}  # type: ignore[arg-type]


def _check(key: str, value: object, hint: object) -> None:
    """Raise if a value is not of its setting's type, choices and bounds."""
    kind = plain_type(hint)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            choices = ", ".join(map(str, get_args(hint)))
            raise ConfigError(f"{key} must be one of {choices}, not {value!r}")
        return
    # bool is an int to Python; to a person who writes `port = true` it is a slip.
    if type(value) is not kind:
        raise ConfigError(f"{key} must be {_TYPE_NAMES[kind]}, not {value!r}")
    for bounds in get_args(hint)[1:]:
        if bounds.at_least is not None and value < bounds.at_least:
            raise ConfigError(f"{key} must be at least {bounds.at_least}, not {value}")
        if bounds.at_most is not None and value > bounds.at_most:
            raise ConfigError(f"{key} must be at most {bounds.at_most}, not {value}")


def plain_type(hint: object) -> object:
    """The type under ``Annotated``; a choice is a text."""
    if get_origin(hint) is Literal:
        return str
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint
