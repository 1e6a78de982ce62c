"""Every action as a Redis function: ``FCALL pixiu_send 1 g:all uid 1 tuid 2 text hello``.

A function checks its arguments, appends one entry to the stream of actions and returns the entry's id. It writes
nothing else: the node that reads the stream performs the action. ``pixiu_answer`` finds the answer of an entry.

Function names are global in Redis, so only one version of the library can be loaded. The newest wins: a node replaces
an older version and leaves a newer one alone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from valkey.exceptions import ResponseError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pixiu.backends.redis.server import Server

__all__ = ["NAME", "PREFIX", "VERSION", "load_functions"]

log = logging.getLogger(__name__)

PREFIX = "pixiu_actions_"
VERSION = 1
"""Raise it with every change of the functions."""
NAME = f"{PREFIX}{VERSION}"

_BODY = """
local function append(action)
  return function(keys, args)
    if #keys > 1 then return redis.error_reply('ERR give one key at most: g:all') end
    if keys[1] and keys[1] ~= 'g:all' then return redis.error_reply('ERR the key must be g:all') end
    if #args % 2 ~= 0 then return redis.error_reply('ERR fields and values must come in pairs') end
    if #args > 510 then return redis.error_reply('ERR at most 255 fields') end
    for at = 1, #args, 2 do
      if args[at] == 'action' then return redis.error_reply('ERR the function names the action: leave action out') end
    end
    return redis.call('XADD', 'g:all', '*', 'action', action, unpack(args))
  end
end

local function answer(keys, args)
  if keys[1] ~= 'g:answers' and keys[1] ~= '{g:all}:answers' then
    return redis.error_reply('ERR the key must be g:answers, or {g:all}:answers in a cluster')
  end
  local from = #args == 1 and string.match(args[1], '^(%d+)%-%d+$')
  if not from then return redis.error_reply('ERR give one entry id, as a function returned it') end
  for _ = 1, 100 do
    local found = redis.call('XRANGE', keys[1], from, '+', 'COUNT', 100)
    for _, each in ipairs(found) do
      if each[2][1] == 'entry' and each[2][2] == args[1] then return each[2] end
    end
    if #found < 100 then return false end
    from = '(' .. found[#found][1]
  end
  return false
end

redis.register_function{function_name='pixiu_answer', callback=answer, flags={'no-writes'}}
"""


def load_functions(servers: Iterable[Server], actions: Iterable[str]) -> None:
    """Load the functions into every server. One that refuses is logged, and the stream works without them."""
    code = f"#!lua name={NAME}\n{_BODY}" + "".join(
        f"redis.register_function('pixiu_{action}', append('{action}'))\n" for action in actions
    )
    for server in servers:
        try:
            _load(server, code)
        except ResponseError as error:
            extra = {"server": server.name, "library": NAME, "reason": str(error)}
            log.warning("redis_functions_not_loaded", extra=extra)


def _load(server: Server, code: str) -> None:
    for version in sorted(_versions(server)):
        if version > VERSION:
            log.warning("redis_functions_newer", extra={"server": server.name, "library": f"{PREFIX}{version}"})
            return
        if version < VERSION:
            server.ask("FUNCTION", "DELETE", f"{PREFIX}{version}")
    server.ask("FUNCTION", "LOAD", "REPLACE", code)


def _versions(server: Server) -> list[int]:
    """Versions of the library that a server has."""
    found = []
    for library in server.ask("FUNCTION", "LIST", "LIBRARYNAME", f"{PREFIX}*"):
        name = dict(zip(library[::2], library[1::2], strict=True)).get(b"library_name", b"").decode()
        number = name.removeprefix(PREFIX)
        if number.isdecimal():
            found.append(int(number))
    return found
