"""Actions that come as entries of a stream, as seed 003 has them: read, checked, and made safe to repeat.

An entry is a list of fields. ``action`` names what is done and ``uid`` who does it; all others are params, as texts,
under their own names or the seed's (``tuid``, ``gid``). What is no text goes into ``params``, as a JSON object::

    action send  uid alice  tuid bob  text hi  color red
    action recive  uid bob  platform web  start 17
    action create_group  uid alice  params {"group": "9", "members": ["bob", "carol"]}

Whoever reads a stream may be given an entry twice. So everything that would be made up at each attempt (a send_id, the
id of a new user or group, the key of a change) is made from the entry itself.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from pixiu.im import VERBS
from pixiu.im.content import SEND_ID_BYTES_MAX
from pixiu.model.errors import RequestError, TooLarge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pixiu.im.draft import Params

__all__ = ["ACTIONS", "ENTRY_BYTES_MAX", "Asking", "asking_of", "key_of"]

ENTRY_BYTES_MAX = 1_048_576
"""All names and values of one entry together."""

_FIELDS_MAX = 256
_SAYING = frozenset({"send", "gsend", "system", "broadcast", "push"})
"""These may be under way together: none reads what another changes."""
_SEED_ACTIONS = {"ulink": "unlink", "recive": "receive"}
ACTIONS = (*VERBS, *_SEED_ACTIONS)
"""Every name that ``action`` may have: the verbs, and the seed's spellings."""

_FROM_INBOX = frozenset({"receive", "sync"})
PLATFORM_DEFAULT = "web"
"""Whose inbox ``receive`` and ``sync`` read, unless the entry names another platform."""

_PEER_PARAMS = ("to", "user", "with")
_OWN = frozenset({"action", "uid", "params"})


class Asking(NamedTuple):
    """What an entry asks for."""

    action: str
    user: str
    """Who does it, by public id; empty where nobody is named."""
    params: Params
    is_alone: bool
    """It is done when all before it are done, and before all behind it."""
    token: bytes
    """Names this entry, or its send_id, in a key."""
    send_id: str
    """As it was given; empty if it was not."""
    platform: str = ""
    """Whose inbox is read; empty for actions that read none."""


def asking_of(entry_id: str, fields: Sequence[tuple[bytes, bytes]]) -> Asking:
    """What an entry asks for. Raises ``RequestError`` with what is wrong with it."""
    size = sum(len(name) + len(value) for name, value in fields)
    if size > ENTRY_BYTES_MAX:
        raise TooLarge(f"an entry may have {ENTRY_BYTES_MAX} bytes, not {size}")
    if len(fields) > _FIELDS_MAX:
        raise TooLarge(f"an entry may have {_FIELDS_MAX} fields, not {len(fields)}")
    texts = _texts(fields)
    given = texts.get("action", "")
    action = _SEED_ACTIONS.get(given, given)
    if not action:
        raise RequestError("action is missing")
    verb = VERBS.get(action)
    if verb is None:
        raise RequestError(f"there is no action {action[:64]!r}")
    platform = texts.pop("platform", PLATFORM_DEFAULT) if action in _FROM_INBOX else ""
    params = _params(action, texts)
    user = texts.get("uid", "")
    if action == "create_user" and user and params.setdefault("user", user) != user:
        raise RequestError("uid is who is created: user must be the same, or not be there")
    send_id = _send_id(params)
    mark = f"{entry_id}.{_digest(fields)}"
    token = f"{action}:{send_id}" if send_id else mark
    if "send_id" in verb.params:
        params["send_id"] = send_id or mark
    else:
        params.pop("send_id", None)
    if action in ("create_user", "create_group"):
        what = action.removeprefix("create_")
        params.setdefault(what, f"{what[0]}{sha256(token.encode()).hexdigest()[:20]}")
    is_alone = verb.is_changing and action not in _SAYING
    return Asking(action, user, params, is_alone, token.encode(), send_id, platform)


def key_of(user: int, asking: Asking) -> bytes:
    """Under which a change takes effect once. No send_id has the byte behind the number: it is not UTF-8."""
    return user.to_bytes(8, "big") + b"\xffdoor:" + asking.token


def _texts(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for name, value in fields:
        try:
            key, text = name.decode(), value.decode()
        except UnicodeDecodeError:
            raise RequestError(f"field {name[:40]!r} is not UTF-8; give a body as base64") from None
        if key in texts:
            raise RequestError(f"field {key[:64]!r} is there twice")
        texts[key] = text
    return texts


def _params(action: str, texts: dict[str, str]) -> Params:
    verb = VERBS[action]
    params = _object(texts.get("params"))
    own: dict[str, object] = {}
    for name, text in texts.items():
        if name in _OWN:
            continue
        param = _param(name, verb.params)
        is_known = param in verb.params or param == "send_id" or verb.takes_any
        if not is_known and "fields" in verb.params:
            own[name] = text
            continue
        if param in params:
            raise RequestError(f"{param} is given twice")
        params[param] = text
    if own:
        more = params.setdefault("fields", {})
        if type(more) is not dict:
            raise RequestError("fields must be an object")
        params["fields"] = {**own, **more}
    return params


def _param(name: str, known: frozenset[str]) -> str:
    """A param by its own name, or by the seed's."""
    if name == "gid":
        return "group"
    if name == "tuid":
        return next((param for param in _PEER_PARAMS if param in known), name)
    return name


def _object(text: str | None) -> Params:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"params is no JSON: {error}") from None
    if type(value) is not dict:
        raise RequestError("params must be a JSON object")
    return value


def _send_id(params: Params) -> str:
    value = params.get("send_id")
    if value is None:
        return ""
    text = str(value) if type(value) is int else value
    if type(text) is not str:
        raise RequestError("send_id must be a text")
    if len(text.encode(errors="replace")) > SEND_ID_BYTES_MAX:
        raise TooLarge(f"send_id may have {SEND_ID_BYTES_MAX} bytes")
    return text


def _digest(fields: Sequence[tuple[bytes, bytes]]) -> str:
    """Of what an entry says: a Redis that was emptied may give an id again."""
    found = sha256()
    for name, value in fields:
        found.update(b"%d:%d:" % (len(name), len(value)) + name + value)
    return found.hexdigest()[:12]
