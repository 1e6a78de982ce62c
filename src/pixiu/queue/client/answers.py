"""What the queue tells about itself, as values.

JSON that is not what the protocol promises raises RemoteProtocolError; keys that this version does not know
are left alone, so that a newer server can say more.
"""

import json
from dataclasses import dataclass
from typing import Any

from pixiu.model.errors import RemoteProtocolError

__all__ = ["Appended", "DelayedMessage", "Hello", "Position", "Topic", "decode_list", "decode_object"]

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Appended:
    """The numbers that the writer gave an appended message."""

    event_id: int
    message_id: int
    repeat: bool
    """True: the key had been appended before, and these are the first append's numbers."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic."""

    name: str
    created_at_ms: int
    create_event_id: int
    expires_at_ms: int
    """0 = never."""

    @classmethod
    def of(cls, value: JsonObject) -> "Topic":
        """From the JSON of TopicInfo and List."""
        return cls(
            name=_text(value, "name"),
            created_at_ms=_number(value, "createTimeStamp"),
            create_event_id=_number(value, "createEventId"),
            expires_at_ms=_number(value, "expireAt"),
        )


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A publish that waits for its time."""

    event_id: int
    """What ``cancel_delay`` takes."""
    topic: str
    due_ms: int
    count: int
    bytes: int

    @classmethod
    def of(cls, value: JsonObject) -> "DelayedMessage":
        """From the JSON of Delays."""
        return cls(
            event_id=_number(value, "event_id"),
            topic=_text(value, "topic"),
            due_ms=_number(value, "due"),
            count=_number(value, "count"),
            bytes=_number(value, "bytes"),
        )


@dataclass(frozen=True, slots=True)
class Position:
    """How far a named subscriber has come, as the queue remembers it."""

    subscriber: str
    event_id: int
    live: bool

    @classmethod
    def of(cls, value: JsonObject) -> "Position":
        """From the JSON of Positions."""
        return cls(
            subscriber=_text(value, "subscriber"),
            event_id=_number(value, "event_id"),
            live=bool(value.get("live")),
        )


@dataclass(frozen=True, slots=True)
class Hello:
    """Who is at the other end."""

    version: int
    server: str
    role: str
    epoch: int
    last_event_id: int
    commit_event_id: int

    @classmethod
    def of(cls, value: JsonObject) -> "Hello":
        """From the JSON of Hello."""
        return cls(
            version=_number(value, "version"),
            server=_text(value, "server"),
            role=_text(value, "role"),
            epoch=_number(value, "epoch"),
            last_event_id=_number(value, "last_event_id"),
            commit_event_id=_number(value, "commit_event_id"),
        )


def decode_object(body: bytes) -> JsonObject:
    """A JSON object."""
    value = _decode(body)
    if not isinstance(value, dict):
        raise RemoteProtocolError("the queue answered with something else than a JSON object")
    return value


def decode_list(body: bytes) -> list[JsonObject]:
    """A JSON array of objects; no body at all is the empty one."""
    value = _decode(body) if body else []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise RemoteProtocolError("the queue answered with something else than a JSON array of objects")
    return value


def _decode(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError("the queue answered with something else than JSON") from error


def _number(value: JsonObject, key: str) -> int:
    number = value.get(key)
    if not isinstance(number, int) or isinstance(number, bool):
        raise RemoteProtocolError(f"the queue's answer has no number {key!r}")
    return number


def _text(value: JsonObject, key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        raise RemoteProtocolError(f"the queue's answer has no text {key!r}")
    return text
