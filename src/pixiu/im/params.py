"""Reading params: each reader checks type and bounds, and says what is wrong by name, value and bound.

64-bit ids are texts in JSON; a number is taken too. True and false are numbers to Python, and refused as such here.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, TypeVar

from pixiu.model.errors import RequestError, TooLarge
from pixiu.model.hints import nearest
from pixiu.model.names import check_text, encoded, has_controls

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pixiu.im.draft import Params

__all__ = [
    "FIELDS_BYTES_MAX",
    "FIELDS_MAX",
    "INT64_MAX",
    "check_known",
    "choice",
    "fields",
    "flag",
    "ids",
    "line",
    "number",
    "objects",
    "public_id_text",
    "raw_bytes",
    "required",
]

T = TypeVar("T")

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
FIELDS_MAX = 64
FIELD_NAME_BYTES_MAX = 64
FIELD_BYTES_MAX = 4096
FIELDS_BYTES_MAX = 65_536
"""All names and values of one object of fields together."""


def check_known(verb: str, params: Params, known: frozenset[str]) -> None:
    """Refuse params that the verb does not know, with the nearest one that it does."""
    for name in params:
        if name not in known:
            near = nearest(name, sorted(known))
            hint = f"; did you mean {near!r}?" if near else f"; known: {', '.join(sorted(known)) or 'none'}"
            raise RequestError(f"{verb} knows no {str(name)[:64]!r}{hint}")


def required(params: Params, name: str) -> object:
    """A param that must be there."""
    value = params.get(name)
    if value is None:
        raise RequestError(f"{name} is missing")
    return value


def number(
    params: Params, name: str, *, at_least: int = 0, at_most: int = INT64_MAX, default: int | None = None
) -> int | None:
    """A whole number, given as such or as a text."""
    value = params.get(name)
    if value is None:
        return default
    return whole(value, name, at_least=at_least, at_most=at_most)


def whole(value: object, name: str, *, at_least: int = 0, at_most: int = INT64_MAX) -> int:
    """A whole number from a value."""
    if type(value) is str:
        digits = value.removeprefix("-")
        if not (0 < len(digits) <= 19 and digits.isascii() and digits.isdigit()):
            raise RequestError(f"{name} must be a whole number, not {value[:40]!r}")
        value = int(value)
    if type(value) is not int:
        raise RequestError(f"{name} must be a whole number, not {kind_of(value)}")
    if not at_least <= value <= at_most:
        raise RequestError(f"{name} must be {at_least} to {at_most}, not {short(value)}")
    return value


def ids(params: Params, name: str, *, count_max: int) -> list[int]:
    """A list of message ids, each once, in order; not empty."""
    value = required(params, name)
    if type(value) is not list:
        raise RequestError(f"{name} must be a list, not {kind_of(value)}")
    if len(value) > count_max:
        raise TooLarge(f"{name} may hold {count_max} ids, not {len(value)}")
    if not value:
        raise RequestError(f"{name} must not be empty")
    return list(dict.fromkeys(whole(each, name, at_least=1) for each in value))


def objects(params: Params, name: str, *, count_max: int) -> list[object]:
    """A list of anything; empty if it is not there."""
    value = params.get(name)
    if value is None:
        return []
    if type(value) is not list:
        raise RequestError(f"{name} must be a list, not {kind_of(value)}")
    if len(value) > count_max:
        raise TooLarge(f"{name} may hold {count_max}, not {len(value)}")
    return value


def mapping(params: Params, name: str, *, count_max: int) -> dict[str, object]:
    """An object; empty if it is not there."""
    value = params.get(name)
    if value is None:
        return {}
    if type(value) is not dict:
        raise RequestError(f"{name} must be an object, not {kind_of(value)}")
    if len(value) > count_max:
        raise TooLarge(f"{name} may hold {count_max}, not {len(value)}")
    if not all(type(key) is str for key in value):
        raise RequestError(f"{name} must have texts as names")
    return value


def line(params: Params, name: str, *, bytes_max: int, default: str | None = None) -> str | None:
    """One line of text: no control characters."""
    value = params.get(name)
    if value is None:
        return default
    if type(value) is not str:
        raise RequestError(f"{name} must be a text, not {kind_of(value)}")
    check_text(value, what=name, bytes_max=bytes_max)
    return value


def flag(params: Params, name: str, *, default: bool = False) -> bool:
    """True or false."""
    value = params.get(name)
    if value is None:
        return default
    if type(value) is not bool:
        raise RequestError(f"{name} must be true or false, not {kind_of(value)}")
    return value


def choice(params: Params, name: str, choices: Mapping[str, T], default: str | None = None) -> T:
    """One of a few words, or what it stands for."""
    value = params.get(name, default)
    if value is None and default is not None:
        value = default
    if type(value) is not str or value not in choices:
        raise RequestError(f"{name} must be one of {', '.join(choices)}, not {short(value)}")
    return choices[value]


def fields(value: object, name: str = "fields", *, reserved: Iterable[str] = ()) -> dict[str, str]:
    """A client's own fields: texts by name."""
    if value is None:
        return {}
    if type(value) is not dict:
        raise RequestError(f"{name} must be an object, not {kind_of(value)}")
    if len(value) > FIELDS_MAX:
        raise TooLarge(f"{name} may hold {FIELDS_MAX} fields, not {len(value)}")
    total = 0
    for key, text in value.items():
        if type(key) is not str or not key:
            raise RequestError(f"{name} must have texts as names, not {short(key)}")
        total += len(check_text(key, what=f"a name in {name}", bytes_max=FIELD_NAME_BYTES_MAX))
        if type(text) is not str:
            raise RequestError(f"{name}.{key} must be a text, not {kind_of(text)}")
        size = len(encoded(text, what=f"{name}.{key}"))
        if size > FIELD_BYTES_MAX:
            raise TooLarge(f"{name}.{key} may have {FIELD_BYTES_MAX} bytes, not {size}")
        total += size
    if total > FIELDS_BYTES_MAX:
        raise TooLarge(f"{name} may have {FIELDS_BYTES_MAX} bytes together, not {total}")
    for key in reserved:
        if key in value:
            raise RequestError(f"{name}.{key} is the system's own; take another name")
    return dict(value)


def raw_bytes(value: object, name: str) -> bytes:
    """Bytes, given as base64."""
    if type(value) is not str:
        raise RequestError(f"{name} must be base64 text, not {kind_of(value)}")
    try:
        return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        raise RequestError(f"{name} is not base64: {value[:40]!r}") from None


def public_id_text(value: object, name: str) -> str:
    """A public id as given: a text, or a number where the id is a decimal."""
    if type(value) is str:
        return value
    if type(value) is int and 0 <= value <= INT64_MAX:
        return str(value)
    if value is None:
        raise RequestError(f"{name} is missing")
    raise RequestError(f"{name} must be a public id, not {kind_of(value)}")


def kind_of(value: object) -> str:
    """What JSON calls it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return f"the number {short(value)}"
        case str():
            return f"the text {short(value)}"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return type(value).__name__


def short(value: object) -> str:
    """At most forty characters of it."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if type(value) is int and value.bit_length() > 128:
        return "a number of more than 128 bits"
    text = ascii(value) if type(value) is str and has_controls(value) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
