"""A client's session for tests: frames in, what it wants out."""

from __future__ import annotations

import json
from typing import Any

from pixiu.machines.client_session import Answered, Arrived, ClientRules, ClientSession, Incoming, Tell, Write

__all__ = [
    "CONTACTS",
    "RULES",
    "answers",
    "arrived",
    "events",
    "frame",
    "live",
    "message",
    "push",
    "session",
    "shown",
    "written",
]

RULES = ClientRules(retry_ms=100, retry_ms_max=1_000, stable_ms=5_000, open_ms=2_000, ping_ms=10_000, seen_max=50)
CONTACTS = {"push": "contacts", "contacts": [], "others": []}


def session(cursor: int = 0, jitter: float = 0.0) -> ClientSession:
    made = ClientSession(RULES, jitter=lambda: jitter, cursor=cursor)
    made.user = "bob"
    return made


def frame(value: object) -> bytes:
    return json.dumps(value).encode()


def live(made: ClientSession, now: int = 0) -> list[Any]:
    """Until the first push of a connection is in."""
    made.start(now)
    made.opened(now)
    return list(made.received(frame(CONTACTS), now))


def message(number: int, **more: object) -> dict[str, object]:
    return {
        "message_id": str(number),
        "from": "alice",
        "to": "bob",
        "at": 1,
        "kind": "text",
        "text": str(number),
        **more,
    }


def push(cursor: int, number: int, **more: object) -> bytes:
    return frame({"push": "message", "cursor": str(cursor), "message": message(number, **more)})


def written(commands: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(command.payload) for command in commands if isinstance(command, Write)]


def arrived(commands: list[Any]) -> list[Incoming]:
    return [item for command in commands if isinstance(command, Arrived) for item in command.items]


def shown(commands: list[Any]) -> list[str]:
    return [item.message["text"] for item in arrived(commands) if item.message is not None and item.is_shown]


def events(commands: list[Any], kind: type) -> list[Any]:
    return [command.event for command in commands if isinstance(command, Tell) and isinstance(command.event, kind)]


def answers(commands: list[Any]) -> list[Any]:
    return [command.answer for command in commands if isinstance(command, Answered)]
